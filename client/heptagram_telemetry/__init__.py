"""What every process of ours tells about its work: log lines and spans, each with the id of its request.

Gateway and models share it, so it knows neither. Nothing of a request's content is in it.
"""
