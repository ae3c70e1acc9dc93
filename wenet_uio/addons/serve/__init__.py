"""Serve a trained model: streams over WebSockets, recordings over HTTP, and a page with a microphone."""
