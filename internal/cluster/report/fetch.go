package report

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// Flag --timeout: its default, and its meaning.
const (
	fetchTimeout = 30 * time.Second
	timeoutUsage = "timeout for the answer of jettison-cluster nodes"
)

const maxResponse = 256 << 20 // bytes

// Fetch requests a path from the instance at address, HOST:PORT, and decodes the response.
func Fetch(ctx context.Context, timeout time.Duration, address, path, object string,
	into any) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	endpoint := url.URL{Scheme: "http", Host: address, Path: path}
	if object != "" {
		endpoint.RawQuery = url.Values{"object": {object}}.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoint.String(), nil)
	if err != nil {
		return fmt.Errorf("read status from %s: %w", address, err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("connect to jettison-cluster nodes at %s: %w: pass the --address of a running instance", address,
			errors.Unwrap(err))
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxResponse))
	if err != nil {
		return fmt.Errorf("read status from %s: %w", address, err)
	}
	if response.StatusCode == http.StatusOK {
		if err := json.Unmarshal(text, into); err != nil {
			return fmt.Errorf("read status from %s: invalid response: %w", address, err)
		}
		return nil
	}
	var failure Error
	if json.Unmarshal(text, &failure) != nil || failure.Error == "" {
		return fmt.Errorf("read status from %s: unexpected response %s: is it jettison-cluster nodes?",
			address, response.Status)
	}
	return errors.New(failure.Error)
}
