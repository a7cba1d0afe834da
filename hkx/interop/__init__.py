"""Ways to and from other libraries; each module here is imported only when it is asked for."""
