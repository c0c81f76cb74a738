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

// Admission decides on pods that clients ask about. It is safe for concurrent use. The pod does not
// change during the call, and its annotation kubernetes.io/config.source is verified. An error
// means that no decision is possible now; a rejected pod is a Result.
type Admission interface {
	// Ask decides with the known state of the node. by is the client: a pod that a member describes
	// counts as if it had put it. It changes nothing and does not wait.
	Ask(ctx context.Context, pod *v1.Pod, by podstore.Role) (admit.Result, error)
	// Preempt decides like Ask, and preempts pods if a critical pod needs it. It returns when the
	// preemption has ended. If ctx ends earlier, a started preemption continues. The runtime or a
	// static manifest has a pod with this UID.
	Preempt(ctx context.Context, pod *v1.Pod) (admit.Result, error)
}

var (
	errNoPreempting = &failure{
		status: http.StatusForbidden,
		text:   "forbidden: only root may preempt: omit preempt=true (jettison admit: omit --preempt)",
	}
	errNoAdmission = &failure{status: http.StatusServiceUnavailable,
		text: "admission not available yet: try again"}
)

// maxUnknown bounds the unknown fields that an answer names.
const maxUnknown = 10

// postAdmit serves POST /v1/admit[?preempt=true].
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
	// leaves time to send the timeout error
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
				"the uid %q: no pod is preempted",
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

// noDecision returns the answer for an admission error.
func noDecision(err error) *failure {
	text := err.Error() + ": try again"
	if errors.Is(err, context.DeadlineExceeded) {
		text = "admission timed out, a started preemption continues: try again"
	}
	return &failure{status: http.StatusServiceUnavailable, text: text}
}

// flag returns a parameter that is true or false, the only one of a path.
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

// yamlTypes are the media types of YAML: that of RFC 9512, and those used before it.
var yamlTypes = []string{"application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml"}

// podForm returns the format of the pod that a request names. curl -T names none, and curl
// --data-binary names one that is no pod format: FormUnknown, decided by the text.
func podForm(r *http.Request) (podstore.Form, *failure) {
	if f := uncompressed(r); f != nil {
		return 0, f
	}
	given := r.Header.Get("Content-Type")
	if given == "" {
		return podstore.FormUnknown, nil
	}
	switch t, _, err := mime.ParseMediaType(given); {
	case err != nil:
	case t == "application/json":
		return podstore.FormJSON, nil
	case slices.Contains(yamlTypes, t):
		return podstore.FormYAML, nil
	case t == "application/x-www-form-urlencoded":
		return podstore.FormUnknown, nil
	}
	return 0, unsupported(fmt.Sprintf("Content-Type %.60q: want application/json or application/yaml",
		given))
}
