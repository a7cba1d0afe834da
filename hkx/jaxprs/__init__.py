"""What is known of a program that JAX has traced."""
