package api

import (
	"context"
	"net/http"
)

// Health asks whether the agent is alive: its process answers, and its loop does not hang for good.
// A hung one is a StatusError with status 503.
func (c *Client) Health(ctx context.Context) error {
	_, err := c.ask(ctx, http.MethodGet, PathHealth, nil)
	return err
}

// Ready asks whether the agent watches the node at this moment: its loop runs, and has turned
// within the last seconds. If not, that is a StatusError with status 503 that says why.
func (c *Client) Ready(ctx context.Context) error {
	_, err := c.ask(ctx, http.MethodGet, PathReady, nil)
	return err
}
