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

// Annotations of pods whose eviction goes on in the background once it was asked for, and what the
// API says then (pkg/descheduler/evictions/evictions.go, 0.36.0).
const (
	requestOnly    = "descheduler.alpha.kubernetes.io/request-evict-only"
	inProgress     = "descheduler.alpha.kubernetes.io/eviction-in-progress"
	backgroundText = "Eviction triggered evacuation"
)

// The results that are counted, as 0.36.0 has them.
const (
	resultSuccess    = "success"
	resultError      = "error"
	resultBackground = "background"
)

// fate is what became of an eviction that was asked for.
type fate int

const (
	failed     fate = iota // with an error that says how
	evicted                // it is being deleted
	background             // that goes on in the background
	gone                   // it was before
	refused                // a budget, a webhook or a policy keeps it
	forbidden              // this program may not evict it
)

// evict asks for one eviction. An error is one that the next one would likely have, too: a pod that
// a budget or a webhook keeps, or that is another one by now, is none.
func (d *descheduler) evict(ctx context.Context, e *deschedule.Eviction) (fate, error) {
	fields := fieldsOf(e)
	err := d.ask(ctx, e)
	now := d.now()
	switch {
	case err == nil:
		d.memory.evicted(now, e.Pod)
		d.count(e, resultSuccess)
		d.o.Log.Info("evicted", fields...)
		d.event(ctx, now, e, nil)
		return evicted, nil
	case errors.Is(err, kubeclient.ErrNotLeading) || ctx.Err() != nil:
		return failed, err
	case goesOn(e.Pod, err):
		d.memory.requested(now, e.Pod)
		d.count(e, resultBackground)
		d.o.Log.Info("evicted in the background", fields...)
		return background, nil
	case (apierrors.IsNotFound(err) || apierrors.IsConflict(err)) && !denied(err):
		d.o.Log.Info("a pod was gone before it was evicted", fields...)
		return gone, nil
	}
	d.count(e, resultError)
	d.o.Log.Warn("a pod was not evicted", append(fields, "error", err)...)
	if f := d.o.Policy.EvictionFailureEventNotification; f != nil && *f {
		d.event(ctx, now, e, err)
	}
	if !isAnswer(err) {
		return failed, err
	}
	d.memory.refused(now, e.Pod, err)
	if mayNot(err) {
		return forbidden, nil
	}
	return refused, nil
}

// ask is the request.
func (d *descheduler) ask(ctx context.Context, e *deschedule.Eviction) error {
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

// goesOn reports whether an eviction goes on by itself.
func goesOn(p *v1.Pod, err error) bool {
	_, may := p.Annotations[requestOnly]
	return may && apierrors.IsTooManyRequests(err) && strings.Contains(err.Error(), backgroundText)
}

// mayNot reports whether it is the right to evict that lacks, here or everywhere (k8s.io/apiserver
// pkg/endpoints/handlers/responsewriters/errors.go, v1.36).
func mayNot(err error) bool {
	return apierrors.IsForbidden(err) && !denied(err) &&
		strings.Contains(err.Error(), "cannot create resource \"pods/eviction\"")
}

// isAnswer reports whether an answer is about this pod: a budget, a webhook or a policy keeps it.
func isAnswer(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	if denied(err) {
		return true
	}
	switch s := status.Status(); s.Code {
	case http.StatusTooManyRequests:
		return apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause)
	case http.StatusForbidden, http.StatusUnprocessableEntity, http.StatusBadRequest:
		return true
	// so the API answers where several budgets are about a pod, and where a webhook cannot be asked
	case http.StatusInternalServerError:
		return strings.Contains(s.Message, "more than one PodDisruptionBudget")
	}
	return false
}

// denied reports whether a webhook or a policy has said no, which may give any code
// (k8s.io/apiserver pkg/admission/plugin/webhook/errors/statuserror.go,
// pkg/admission/plugin/policy/validating/dispatcher.go, v1.36). Where a webhook cannot be asked the
// API server says otherwise: the next eviction would fail, too.
func denied(err error) bool {
	text := err.Error()
	return strings.Contains(text, "admission webhook ") &&
		strings.Contains(text, " denied the request") ||
		strings.Contains(text, "ValidatingAdmissionPolicy ") && strings.Contains(text, " denied request")
}

func (d *descheduler) count(e *deschedule.Eviction, result string) {
	d.metrics.evicted.WithLabelValues(result, e.Strategy, e.Profile, e.Namespace, e.Node).Inc()
}
