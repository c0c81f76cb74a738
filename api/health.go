package api

import (
	"context"
	"net/http"
)

// Health checks that the agent is alive: its process answers and its loop makes progress. An agent
// with a hung loop causes a StatusError with status 503.
func (c *Client) Health(ctx context.Context) error {
	_, err := c.ask(ctx, http.MethodGet, PathHealth, nil)
	return err
}

// Ready checks that the agent watches the node now: its loop has completed an iteration within the
// last seconds. Otherwise it returns a StatusError with status 503 and the reason.
func (c *Client) Ready(ctx context.Context) error {
	_, err := c.ask(ctx, http.MethodGet, PathReady, nil)
	return err
}
