package deliver

import (
	"context"
	"log/slog"
	"time"

	"jettison/internal/base/retry"
	"jettison/internal/bridge/kube"
	"jettison/internal/bridge/verdict"
)

// unreachableError is the error of a slow write without a response, where a read had none either.
type unreachableError struct{ error }

// awaitInBackground waits beside the loop, which processes the response. Until then the entry's
// write is in flight.
func (d *Deliverer) awaitInBackground(ctx context.Context, s *statusRequest) {
	e := s.entry
	e.write.slow = true
	d.queue.inFlight[e] = struct{}{}
	pod := e.record.Pod
	d.background.Go(func() {
		defer s.cancel()
		got := <-s.response
		readable := false
		if kube.Means(got.err) == kube.Away {
			if readable = d.read(ctx, pod) == nil; !readable && kube.Unanswered(got.err) {
				got.err = unreachableError{got.err}
			}
		}
		d.inLoop(ctx, func(ctx context.Context) {
			delete(d.queue.inFlight, e)
			_, err := d.process(ctx, s, got)
			if err != nil && readable {
				err = d.reject(e, err)
			}
			if ctx.Err() == nil {
				d.record(err)
			}
		})
	})
}

// process takes the response to a write. again: the entry may need another step. An error: the
// server may be unreachable.
func (d *Deliverer) process(ctx context.Context, s *statusRequest, got response) (again bool,
	err error) {
	e, act := s.entry, s.verdict.Act.String()
	means := kube.Means(got.err)
	d.breaker.answered = d.breaker.answered || means != kube.Away
	// A server that lost its storage meanwhile fails, too.
	e.pod.unsure = e.pod.unsure || means == kube.Away || means == kube.Failing
	switch means {
	case kube.None:
		e.pod.last, e.pod.unsure, e.write = got.pod, false, statusWrite{}
		if s.verdict.Act == verdict.Mend { // one that did not reach the server changed nothing back
			*s.mends++
		}
		d.written(e, s.verdict)
		return true, nil
	case kube.Changed:
		if e.write.slow { // maxSteps does not bound it
			e.write.fail(time.Now(), maxBackoff, 0)
		}
		return d.fetch(ctx, e)
	case kube.NotFound:
		e.pod.missing()
		return true, nil
	case kube.Refused:
		d.refused(e, act, got.err)
		return false, nil
	case kube.Failing:
		d.failed(e, act, got.err)
		return false, nil
	}
	if e.write.slow && kube.Unanswered(got.err) {
		e.write.fail(time.Now(), maxRefusedBackoff, 0)
		d.report(e, slog.LevelWarn, "the API takes too long for a pod's status: it is told again", act,
			got.err)
		return false, nil
	}
	return false, got.err
}

// fetch reads the pod from the server. again: it has responded.
func (d *Deliverer) fetch(ctx context.Context, e *entry) (again bool, err error) {
	r := e.record
	if r.Pod.Name == "" { // the agent did not know it, so it cannot be read
		e.pod.missing()
		return true, nil
	}
	pod, err := d.o.API.Pod(ctx, r.Pod.Namespace, r.Pod.Name)
	d.breaker.answered = d.breaker.answered || kube.Means(err) != kube.Away
	switch kube.Means(err) {
	case kube.None:
		e.pod = podView{last: pod, gone: pod == nil}
		return true, nil
	case kube.NotFound:
		e.pod.missing()
		return true, nil
	case kube.Refused:
		if e.write.delay == maxRefusedBackoff { // it is for good
			e.pod.unsure = false
		}
		d.refused(e, "get", err)
		return false, nil
	case kube.Failing:
		d.failed(e, "get", err)
		return false, nil
	}
	return false, err
}

// written logs what was written.
func (d *Deliverer) written(e *entry, v verdict.Verdict) {
	switch v.Act {
	case verdict.Mend:
		mends := e.mends.phase + e.mends.reason
		d.o.Log.Warn("the pod's status was mended", append(d.fields(e), "reason", v.Why,
			"mends", mends)...)
		if e.mends.failedAt = time.Now(); mends > 1 { // do not fight who changes it back
			e.write.retryAt = e.mends.failedAt.Add(retry.Jitter(minBackoff << min(mends, 5)))
		}
	case verdict.Fail:
		e.mends.failedAt = time.Now()
		d.o.Log.Info("the pod is failed",
			append(d.fields(e), "after", time.Since(e.record.EndBegan().Time))...)
	case verdict.Yield:
		d.o.Log.Info("the pod's kubelet is let have its word", append(d.fields(e), "reason", v.Why)...)
	case verdict.Mark:
		d.o.Log.Info("the pod is marked as about to be disrupted", d.fields(e)...)
	case verdict.Unmark:
		d.o.Log.Info("the pod is marked as not disrupted", append(d.fields(e), "reason", v.Why)...)
	}
}

// refused delays an entry until a role or a policy may allow the request.
func (d *Deliverer) refused(e *entry, what string, err error) {
	e.write.fail(time.Now(), maxRefusedBackoff, 0)
	d.report(e, slog.LevelError, "the API refuses what is to be told: it is told again", what, err)
}

// failed delays an entry after an internal error of the server, which may concern this pod alone.
func (d *Deliverer) failed(e *entry, what string, err error) {
	retryAfter, _ := kube.AskAgain(err)
	longest := maxBackoff
	if e.write.slow { // it takes one of maxInFlight places
		longest = maxRefusedBackoff
	}
	e.write.fail(time.Now(), longest, retryAfter)
	d.report(e, slog.LevelWarn, "the API fails to take a pod's status: it is told again", what, err)
}

// report logs why an entry waits: at its level when that begins, at debug level after that.
func (d *Deliverer) report(e *entry, level slog.Level, message, what string, err error) {
	if e.write.reported == message+what {
		level = slog.LevelDebug
	}
	e.write.reported = message + what
	d.o.Log.Log(context.Background(), level, message, append(d.fields(e), "what", what,
		"error", err)...)
}

// fields returns the keys of each log line about an entry.
func (d *Deliverer) fields(e *entry) []any {
	return []any{"pod", e.record.Pod.Title(), "uid", e.record.Pod.UID, "record", e.record.ID}
}
