package runner

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"jettison/cluster/deschedule"
	"jettison/internal/cluster/kubeclient"
)

// Annotations of pods that are evicted in the background, and the API server's message then
// (pkg/descheduler/evictions/evictions.go, 0.36.0).
const (
	requestOnly    = "descheduler.alpha.kubernetes.io/request-evict-only"
	inProgress     = "descheduler.alpha.kubernetes.io/eviction-in-progress"
	backgroundText = "Eviction triggered evacuation"
)

// Values of the metric label result, as in 0.36.0.
const (
	resultSuccess    = "success"
	resultError      = "error"
	resultBackground = "background"
)

// outcome is the outcome of an eviction request.
type outcome int

const (
	outcomeFailed     outcome = iota // the error explains why
	outcomeEvicted                   // the pod is being deleted
	outcomeBackground                // the eviction continues in the background
	outcomeGone                      // the pod no longer exists
	outcomeRejected                  // rejected by a budget, a webhook or a policy
	outcomeForbidden                 // this program lacks the permission
)

// evict requests one eviction. It returns only errors that the next eviction would likely
// encounter, too. It returns no error if a budget or webhook rejects the eviction, if a webhook is
// broken, or if the pod no longer exists.
func (d *descheduler) evict(ctx context.Context, e *deschedule.Eviction) (outcome, error) {
	fields := fieldsOf(e)
	err := d.requestEviction(ctx, e)
	now := d.now()
	switch {
	case err == nil:
		d.history.addEvicted(now, e)
		d.count(e, resultSuccess)
		//log: The API server accepted the eviction of a pod.
		d.o.Log.Info("pod evicted", fields...)
		d.event(ctx, now, e, nil)
		return outcomeEvicted, nil
	case errors.Is(err, kubeclient.ErrNotLeading) || ctx.Err() != nil:
		return outcomeFailed, err
	case continuesInBackground(e.Pod, err):
		d.history.addBackground(now, e.Pod)
		d.count(e, resultBackground)
		//log: The API server accepted the eviction of a pod. It continues in the background, as the pod's
		//  annotation descheduler.alpha.kubernetes.io/request-evict-only requests.
		d.o.Log.Info("pod eviction continues in background", fields...)
		return outcomeBackground, nil
	case (apierrors.IsNotFound(err) || apierrors.IsConflict(err)) && !deniedByPolicy(err) &&
		!apierrors.IsUnexpectedServerError(err):
		//log: The pod was deleted or replaced after the plan was made. Nothing is evicted.
		d.o.Log.Info("pod gone before eviction", fields...)
		return outcomeGone, nil
	}
	d.count(e, resultError)
	//log: The eviction of a pod failed or was rejected, for example by a disruption budget. A
	//  rejected pod is not tried again for ten minutes, a pod behind a broken webhook for one minute
	//  or, after more failures, for up to ten.
	//do: Nothing for a budget. Otherwise fix the cause in error: a webhook or a missing permission.
	d.o.Log.Warn("pod eviction failed", append(fields, "error", err)...)
	if f := d.o.Policy.EvictionFailureEventNotification; f != nil && *f {
		d.event(ctx, now, e, err)
	}
	if webhookFailed(err) {
		d.history.addFailed(now, e.Pod, err)
		return outcomeFailed, nil
	}
	if !rejectsPod(err) {
		return outcomeFailed, err
	}
	d.history.addRejected(now, e.Pod, err)
	if lacksPermission(err) {
		return outcomeForbidden, nil
	}
	return outcomeRejected, nil
}

// requestEviction sends the eviction request.
func (d *descheduler) requestEviction(ctx context.Context, e *deschedule.Eviction) error {
	err := kubeclient.Evict(ctx, d.write, &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: e.Name,
			Annotations: map[string]string{
				"reason":       fmt.Sprintf("triggered by %s/%s: %s", e.Profile, e.Strategy, e.Reason),
				"requested-by": reporter,
			}},
		DeleteOptions: &metav1.DeleteOptions{
			GracePeriodSeconds: d.o.Policy.GracePeriodSeconds,
			Preconditions:      &metav1.Preconditions{UID: &e.UID},
		},
	})
	if err != nil {
		return fmt.Errorf("evict pod %s/%s: %w", e.Namespace, e.Name, err)
	}
	return nil
}

// continuesInBackground reports whether an error means that the eviction continues in the
// background.
func continuesInBackground(p *v1.Pod, err error) bool {
	_, annotated := p.Annotations[requestOnly]
	return annotated && apierrors.IsTooManyRequests(err) && strings.Contains(err.Error(), backgroundText)
}

// lacksPermission reports whether the permission to evict is missing, in a namespace or
// everywhere (k8s.io/apiserver pkg/endpoints/handlers/responsewriters/errors.go, v1.36).
func lacksPermission(err error) bool {
	return apierrors.IsForbidden(err) && !deniedByPolicy(err) &&
		strings.Contains(err.Error(), "cannot create resource \"pods/eviction\"")
}

// rejectsPod reports whether an error is about this pod only: a budget, a webhook or a policy
// rejected its eviction. The response of a proxy in front of the API server, such as the sidecar of
// a service mesh, is about all pods.
func rejectsPod(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || apierrors.IsUnexpectedServerError(err) {
		return false
	}
	if deniedByPolicy(err) {
		return true
	}
	switch s := status.Status(); s.Code {
	case http.StatusTooManyRequests:
		return apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause)
	case http.StatusForbidden, http.StatusUnprocessableEntity, http.StatusBadRequest:
		return true
	// the API server returns it for a pod with several budgets, but also for an unreachable webhook
	case http.StatusInternalServerError:
		return strings.Contains(s.Message, "more than one PodDisruptionBudget")
	}
	return false
}

// deniedByPolicy reports whether an admission webhook or policy denied the request, with any
// status code (k8s.io/apiserver pkg/admission/plugin/webhook/errors/statuserror.go,
// pkg/admission/plugin/policy/validating/dispatcher.go, v1.36).
func deniedByPolicy(err error) bool {
	text := err.Error()
	return strings.Contains(text, "admission webhook ") &&
		strings.Contains(text, " denied the request") ||
		strings.Contains(text, "ValidatingAdmissionPolicy ") && strings.Contains(text, " denied request")
}

// webhookFailed reports whether the API server could not call an admission webhook
// (k8s.io/apiserver pkg/admission/plugin/webhook/validating/dispatcher.go, v1.36). A webhook may
// apply to some pods only, so other evictions can succeed.
func webhookFailed(err error) bool {
	return apierrors.IsInternalError(err) && strings.Contains(err.Error(), "failed calling webhook ")
}

func (d *descheduler) count(e *deschedule.Eviction, result string) {
	d.metrics.evicted.WithLabelValues(result, e.Strategy, e.Profile, e.Namespace, e.Node).Inc()
}
