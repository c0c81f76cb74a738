package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// MaxPodBytes is the most that one pod may have as JSON.
const MaxPodBytes = 1 << 20

// AdmitAnswer is whether the node takes a pod, in the kubelet's words.
type AdmitAnswer struct {
	UID   string `json:"uid"` // of the pod that was asked about
	Admit bool   `json:"admit"`
	// Evicted, OutOfcpu, NodeAffinity and the like; empty: it is admitted
	Reason  string `json:"reason"`
	Message string `json:"message"` // likewise
	// Unknown are fields of the pod that the agent does not know and did not ask about, at most ten.
	Unknown []string `json:"unknownFields,omitempty"`
}

// Admit asks whether the node takes a pod: a *v1.Pod, or what else encoding/json makes one of.
// Nothing comes of asking.
func (c *Client) Admit(ctx context.Context, pod any) (AdmitAnswer, error) {
	return c.admit(ctx, PathAdmit, pod)
}

// Preempt is Admit, and if the pod is critical and there is no room for it, others are killed to
// make some. The answer comes when the room is there, or when it is clear that it will not be: that
// may take a minute, so the client wants a Limit of more. Room that was made is kept for the pod
// for 30 s. Only root may, and only for a pod that the runtime or a static manifest has by its UID,
// else the error is a StatusError of 403 or 404. After another error others may be dead all the
// same.
func (c *Client) Preempt(ctx context.Context, pod any) (AdmitAnswer, error) {
	return c.admit(ctx, PathAdmit+"?preempt=true", pod)
}

func (c *Client) admit(ctx context.Context, path string, pod any) (answer AdmitAnswer, err error) {
	body, err := json.Marshal(pod)
	if err != nil {
		return answer, c.failed(http.MethodPost, path, fmt.Errorf("the pod cannot be written as JSON: %w",
			err))
	}
	if len(body) > MaxPodBytes {
		return answer, c.failed(http.MethodPost, path,
			fmt.Errorf("the pod has %d bytes, the agent takes %d", len(body), MaxPodBytes))
	}
	text, err := c.ask(ctx, http.MethodPost, path, body)
	if err != nil {
		return answer, err
	}
	var said struct {
		Admit *bool `json:"admit"`
	}
	if err = json.Unmarshal(text, &said); err == nil {
		err = json.Unmarshal(text, &answer)
	}
	if err == nil && said.Admit == nil { // which would read as a refusal
		err = errors.New("not whether the pod is admitted")
	}
	if err != nil {
		return AdmitAnswer{}, c.failed(http.MethodPost, path, malformed(err))
	}
	return answer, nil
}
