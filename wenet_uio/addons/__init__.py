"""What only some need: each folder can be taken away, and everything that does not name it works as before."""
