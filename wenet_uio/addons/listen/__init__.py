"""The Python interface to trained models; `import wenet_uio` gives its names."""
