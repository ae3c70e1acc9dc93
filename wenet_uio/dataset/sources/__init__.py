"""Types of sources of a mixture: one module for the formats of one tool."""
