package report

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"jettison/internal/base/commandline"
	"jettison/internal/cluster/config"
)

// maxResponse bounds one response in bytes.
const maxResponse = 256 << 20

// fetch requests a path from the instance and decodes the response.
func (s *server) fetch(ctx context.Context, path, object string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	endpoint := url.URL{Scheme: "http", Host: s.address, Path: path}
	if object != "" {
		endpoint.RawQuery = url.Values{"object": {object}}.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoint.String(), nil)
	if err != nil {
		return commandline.Usage(fmt.Errorf("--address %.64q: want HOST:PORT, such as %s", s.address,
			config.DefaultAddress))
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("connect to jettison-cluster nodes at %s: %w: pass the --address of a running instance", s.address,
			errors.Unwrap(err))
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxResponse))
	if err != nil {
		return fmt.Errorf("read status from %s: %w", s.address, err)
	}
	if response.StatusCode == http.StatusOK {
		if err := json.Unmarshal(text, into); err != nil {
			return fmt.Errorf("read status from %s: invalid response: %w", s.address, err)
		}
		return nil
	}
	var failure Error
	if json.Unmarshal(text, &failure) != nil || failure.Error == "" {
		return fmt.Errorf("read status from %s: unexpected response %s: is it jettison-cluster nodes?",
			s.address, response.Status)
	}
	return errors.New(failure.Error)
}
