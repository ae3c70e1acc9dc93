"""Download models of a hub to local folders, and load them."""
