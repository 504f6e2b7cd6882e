"""OpenAI's chat completions: the request's fields, the chunks of a stream, the message of a whole answer."""
