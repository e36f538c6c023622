"""The methods of the wire: their parameters, their handlers and the JSON they give."""
