package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// MaxPodBytes limits the size of one pod as JSON.
const MaxPodBytes = 1 << 20

// AdmitAnswer is the decision on a pod, with the kubelet's reason and message.
type AdmitAnswer struct {
	UID   string `json:"uid"` // of the pod
	Admit bool   `json:"admit"`
	// for example Evicted, OutOfcpu or NodeAffinity; empty: the pod is admitted
	Reason  string `json:"reason"`
	Message string `json:"message"` // empty: the pod is admitted
	// Unknown lists fields of the pod that the agent does not know and did not check, at most ten.
	Unknown []string `json:"unknownFields,omitempty"`
}

// Admit requests a decision on a pod: a *v1.Pod, or any value that encoding/json encodes as one.
// The agent changes nothing.
func (c *Client) Admit(ctx context.Context, pod any) (AdmitAnswer, error) {
	return c.admit(ctx, PathAdmit, pod)
}

// Preempt requests a decision like Admit. If the pod is critical and does not fit, the agent kills
// other pods for it. The answer comes when the pod fits or preemption has failed. That may take a
// minute, so the client needs a longer Limit. The agent reserves the freed resources for 30 s.
//
// Only root may call Preempt (otherwise StatusError 403), and only for a pod with a UID that the
// runtime or a static manifest has (otherwise 404). After any other error, pods may have been
// killed.
func (c *Client) Preempt(ctx context.Context, pod any) (AdmitAnswer, error) {
	return c.admit(ctx, PathAdmit+"?preempt=true", pod)
}

func (c *Client) admit(ctx context.Context, path string, pod any) (answer AdmitAnswer, err error) {
	body, err := json.Marshal(pod)
	if err != nil {
		return answer, c.failed(http.MethodPost, path, fmt.Errorf("encode pod as JSON: %w", err))
	}
	if len(body) > MaxPodBytes {
		return answer, c.failed(http.MethodPost, path,
			fmt.Errorf("pod is %d bytes, limit is %d", len(body), MaxPodBytes))
	}
	text, err := c.ask(ctx, http.MethodPost, path, body)
	if err != nil {
		return answer, err
	}
	var required struct {
		Admit *bool `json:"admit"`
	}
	if err = json.Unmarshal(text, &required); err == nil {
		err = json.Unmarshal(text, &answer)
	}
	if err == nil && required.Admit == nil { // without this check it would count as a rejection
		err = errors.New("field admit is missing")
	}
	if err != nil {
		return AdmitAnswer{}, c.failed(http.MethodPost, path, malformed(err))
	}
	return answer, nil
}
