"""A server for a trained model: streams over WebSockets, recordings over HTTP, and a page to speak
to.
"""
