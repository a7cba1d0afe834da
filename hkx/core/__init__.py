"""What a transform is: frames, names, keys, parameters, modules and the two pure functions."""
