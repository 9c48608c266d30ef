"""Local web pages: the app (`undertow app`) and the annotation page (`undertow annotate`)."""
