Page = PageFigure = render_page = None
