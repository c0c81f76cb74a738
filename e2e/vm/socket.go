package vm

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	v1 "k8s.io/api/core/v1"

	"jettison/e2e/guestapi"
)

// Ask speaks HTTP to the agent's socket, as a client on the node would, as root. body: JSON of it goes out; nil: nothing does. A
// status other than 2xx is an error with what was answered.
func (n *Node) Ask(ctx context.Context, method, path string, body any) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callDeadline)
	defer cancel()
	var out io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		out = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+n.address[guestapi.PortAgent]+path, out)
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := n.http.Do(req)
	if err != nil { // the guest hangs up where nobody listens
		return nil, fmt.Errorf("ask the agent: %w (%s)", err, guestapi.AgentSocket)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode/100 != 2 {
		err = fmt.Errorf("status %d: %s", res.StatusCode, tail(string(answer), 2000))
	}
	if err != nil {
		return nil, fmt.Errorf("ask the agent: %s %s: %w", method, path, err)
	}
	return answer, nil
}

// PutPods hands the objects of pods to the agent.
func (n *Node) PutPods(ctx context.Context, pods ...*Pod) error {
	objects := make([]*v1.Pod, 0, len(pods))
	for _, p := range pods {
		objects = append(objects, p.Object)
	}
	_, err := n.Ask(ctx, http.MethodPut, "/v1/pods", objects)
	return err
}
