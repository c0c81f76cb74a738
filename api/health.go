package api

import (
	"context"
	"fmt"
	"net/http"
)

// Health checks that the agent is alive: its process answers and its loop makes progress. An agent
// with a hung loop causes a StatusError with status 503.
func (c *Client) Health(ctx context.Context) error {
	return c.probe(ctx, PathHealth)
}

// Ready checks that the agent watches the node now: its loop has completed an iteration within the
// last seconds. Otherwise it returns a StatusError with status 503 and the reason.
func (c *Client) Ready(ctx context.Context) error {
	return c.probe(ctx, PathReady)
}

// probe requests a path that an agent answers with "ok". Many other servers do the same, so an
// answer without HeaderMinor counts only if the server also has an agent's state.
func (c *Client) probe(ctx context.Context, path string) error {
	text, err := c.ask(ctx, http.MethodGet, path, nil)
	if err == nil && string(text) != "ok\n" {
		err = c.failed(http.MethodGet, path, malformed(fmt.Errorf("%.200s", text)))
	}
	if err == nil && c.AgentMinor() == 0 {
		_, err = c.State(ctx)
	}
	return err
}
