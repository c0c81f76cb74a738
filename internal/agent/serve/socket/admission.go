package socket

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"

	v1 "k8s.io/api/core/v1"

	"jettison/admit"
	"jettison/api"
	"jettison/internal/agent/objects/podstore"
	"jettison/internal/base/podjson"
)

// Admission decides on pods that clients ask about. It may be asked from any goroutine, and by
// several at once. A pod that it is given is not changed any more, and what it says in
// kubernetes.io/config.source may be believed. An error is why there is no answer now; what speaks
// against a pod is a Result.
type Admission interface {
	// Ask decides by what is known of the node, and who asks: what a member says of a pod counts as if
	// it had put it. It changes nothing, and does not wait.
	Ask(ctx context.Context, pod *v1.Pod, by podstore.By) (admit.Result, error)
	// Preempt decides as Ask does, and makes room for a critical pod that has none: it returns when
	// the room is there, or why it will not be. Where the context ends before, what was begun goes on.
	// The runtime or a manifest has a pod of its UID.
	Preempt(ctx context.Context, pod *v1.Pod) (admit.Result, error)
}

var (
	errNoPreempting = &failure{
		status: http.StatusForbidden,
		text:   "forbidden: preempting is root's: ask without preempt=true (jettison admit: without --preempt)",
	}
	errNoAdmission = &failure{status: http.StatusServiceUnavailable,
		text: "the agent cannot decide on pods yet: try again"}
)

// maxUnknown is how many fields an answer names that the agent does not know.
const maxUnknown = 10

// postAdmit is POST /v1/admit[?preempt=true].
func (h *handler) postAdmit(w http.ResponseWriter, r *http.Request) *failure {
	preempt, f := flag(r, "preempt")
	if f != nil {
		return f
	}
	if preempt && by(r) != podstore.ByRoot {
		return errNoPreempting
	}
	form, f := podForm(r)
	if f != nil {
		return f
	}
	if r.ContentLength > podjson.MaxPod {
		return tooLarge(podjson.MaxPod)
	}
	if h.admission == nil {
		return errNoAdmission
	}
	// so that there is time to say that it was too long
	ctx, cancel := context.WithTimeout(r.Context(), h.limit-h.limit/6)
	defer cancel()
	asked, done, err := h.pods.Ask(h.bodyOf(ctx, w, r, podjson.MaxPod), form, by(r))
	defer done()
	if err != nil {
		return putFailure(ctx, err)
	}
	decide := func(ctx context.Context, pod *v1.Pod) (admit.Result, error) {
		return h.admission.Ask(ctx, pod, by(r))
	}
	if preempt {
		if !asked.Known {
			text := fmt.Sprintf("metadata.uid: neither the runtime nor a static manifest has a pod with "+
				"the uid %q: nothing is preempted for it",
				asked.Pod.UID)
			return &failure{status: http.StatusNotFound, text: text}
		}
		decide = h.admission.Preempt
	}
	result, err := decide(ctx, asked.Pod)
	if err != nil {
		return noDecision(err)
	}
	answer := api.AdmitAnswer{UID: string(asked.Pod.UID), Admit: result.Admit, Reason: result.Reason,
		Message: result.Message}
	answer.Unknown = asked.Unknown[:min(len(asked.Unknown), maxUnknown)]
	return h.answer(w, r, answer)
}

// noDecision says why there is none.
func noDecision(err error) *failure {
	text := err.Error() + ": try again"
	if errors.Is(err, context.DeadlineExceeded) {
		text = "it took too long; what was begun goes on: try again"
	}
	return &failure{status: http.StatusServiceUnavailable, text: text}
}

// flag is a parameter that is true or false, the only one that a path takes.
func flag(r *http.Request, name string) (bool, *failure) {
	query, err := query(r, name)
	if err != nil {
		return false, bad(err)
	}
	switch v := query.Get(name); v {
	case "true":
		return true, nil
	case "", "false":
		return false, nil
	default:
		return false, bad(fmt.Errorf("%s=%.20q: want true or false", name, v))
	}
}

// Media types of YAML (RFC 9512), and those of before it.
var yamlTypes = []string{"application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml"}

// podForm is how a request says that its pod is written. curl -T does not say it, and curl
// --data-binary says what is no form of a pod: then the text itself tells.
func podForm(r *http.Request) (podstore.Form, *failure) {
	if f := uncompressed(r); f != nil {
		return 0, f
	}
	given := r.Header.Get("Content-Type")
	if given == "" {
		return podstore.FormUnsaid, nil
	}
	switch t, _, err := mime.ParseMediaType(given); {
	case err != nil:
	case t == "application/json":
		return podstore.FormJSON, nil
	case slices.Contains(yamlTypes, t):
		return podstore.FormYAML, nil
	case t == "application/x-www-form-urlencoded":
		return podstore.FormUnsaid, nil
	}
	return 0, unsupported(fmt.Sprintf("Content-Type %.60q: want application/json or application/yaml",
		given))
}
