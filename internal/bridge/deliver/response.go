package deliver

import (
	"context"
	"errors"
	"time"

	"jettison/internal/base/retry"
	"jettison/internal/bridge/kube"
	"jettison/internal/bridge/verdict"
)

// unreachableError is the error of a request while a read of the node failed too: the API server is
// unreachable, not only for one pod.
type unreachableError struct{ error }

func (e unreachableError) Unwrap() error { return e.error }

func isUnreachable(err error) bool {
	_, ok := errors.AsType[unreachableError](err)
	return ok
}

// awaitInBackground waits for the response in a goroutine and passes it to the loop. Until then the
// entry's write is in flight.
func (d *Deliverer) awaitInBackground(ctx context.Context, s *statusRequest) {
	e := s.entry
	e.write.slow = true
	d.queue.inFlight[e] = struct{}{}
	d.background.Go(func() {
		defer s.cancel()
		got := <-s.response
		readable := false
		if kube.Classify(got.err) == kube.Unreachable {
			if readable = d.read(ctx) == nil; !readable {
				got.err = unreachableError{got.err}
			}
		}
		d.runInLoop(ctx, func(ctx context.Context) {
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

// process processes the response to a write. again: the entry may need another step. A non-nil
// error means that the server may be unreachable.
func (d *Deliverer) process(ctx context.Context, s *statusRequest, got response) (again bool,
	err error) {
	e, act := s.entry, s.verdict.Act.String()
	failure := kube.Classify(got.err)
	d.breaker.answered = d.breaker.answered || failure != kube.Unreachable
	// A server that loses its storage during the write responds with an error although the write
	// may have succeeded.
	e.pod.uncertain = e.pod.uncertain || failure == kube.Unreachable || failure == kube.ServerError
	switch failure {
	case kube.None:
		e.pod.last, e.pod.uncertain, e.write = got.pod, false, statusWrite{}
		if s.verdict.Act == verdict.Restore { // failed writes are not counted
			*s.restores++
		}
		d.recordWritten(e, s.verdict, got.at)
		return true, nil
	case kube.Conflict:
		if e.write.slow { // maxSteps does not bound slow writes
			e.write.fail(time.Now(), maxBackoff, 0)
		}
		if pod := d.currentPod(e); pod != nil && pod.ResourceVersion != s.version {
			return true, nil // the watch has the change, usually of the kubelet
		}
		return d.fetch(ctx, e)
	case kube.NotFound:
		e.pod.setMissing()
		return true, nil
	case kube.Denied:
		d.postponeDenied(e, act, got.err)
		return false, nil
	case kube.ServerError:
		d.postponeFailed(e, act, got.err)
		return false, nil
	}
	if e.write.slow && kube.TimedOut(got.err) && !isUnreachable(got.err) {
		e.write.fail(time.Now(), maxDeniedBackoff, 0)
		if keys, first := d.failureKeys(e, "timeout", act, got.err); first {
			//log: The API server did not answer the write of a pod status in time, but it serves
			//  reads. The bridge retries with backoff.
			//do: Check admission webhooks for pods/status.
			d.o.Log.Warn("pod status write timed out, retrying", keys...)
		}
		return false, nil
	}
	return false, got.err
}

// fetch reads the pod from the server. again: the server has responded.
func (d *Deliverer) fetch(ctx context.Context, e *entry) (again bool, err error) {
	r := e.record
	if r.Pod.Name == "" { // the agent did not know the name, so the pod cannot be read
		e.pod.setMissing()
		return true, nil
	}
	pod, err := d.o.API.Pod(ctx, r.Pod.Namespace, r.Pod.Name)
	d.breaker.answered = d.breaker.answered || kube.Classify(err) != kube.Unreachable
	switch kube.Classify(err) {
	case kube.None:
		e.pod = podView{last: pod, gone: pod == nil}
		return true, nil
	case kube.NotFound:
		e.pod.setMissing()
		return true, nil
	case kube.Denied:
		if e.write.delay == maxDeniedBackoff { // reads stay denied
			e.pod.uncertain = false
		}
		d.postponeDenied(e, "get", err)
		return false, nil
	case kube.ServerError:
		d.postponeFailed(e, "get", err)
		return false, nil
	}
	if unreachable := d.read(ctx); unreachable != nil {
		return false, unreachable
	}
	d.postponeFailed(e, "get", err) // for example, a proxy resets the connection for this pod
	return false, nil
}

// recordWritten updates the restore state after a successful write, whose response arrived at the
// time at, and logs the write.
func (d *Deliverer) recordWritten(e *entry, v verdict.Verdict, at time.Time) {
	switch v.Act {
	case verdict.Restore:
		restores := e.restores.phase + e.restores.reason
		//log: Another client reverted the status of an evicted pod, and the bridge wrote it again.
		//do: Nothing if it is rare: a kubelet may write a late report. Otherwise find the client
		//  that writes pods/status.
		d.o.Log.Warn("pod status restored", append(d.fields(e), "reason", v.Reason,
			"restores", restores)...)
		if e.restores.failedAt = time.Now(); restores > 1 { // do not fight a client that reverts it
			e.write.retryAt = e.restores.failedAt.Add(retry.Jitter(minBackoff << min(restores, 5)))
		}
	case verdict.Fail:
		e.restores.failedAt = time.Now()
		//log: The bridge set an evicted pod to phase Failed. The key after is the time since the
		//  kill, or since the eviction began if the pod was only stopped.
		d.o.Log.Info("pod set to Failed",
			append(d.fields(e), "after", at.Sub(e.record.EndBegan().Time))...)
	case verdict.Yield:
		//log: The bridge stops protecting the reason in the pod status, because the kubelet may
		//  have to report the end itself.
		d.o.Log.Info("leaving pod status to the kubelet",
			append(d.fields(e), "reason", v.Reason)...)
	case verdict.Mark:
		//log: The pod was chosen for eviction, and the bridge set its condition DisruptionTarget to
		//  True.
		d.o.Log.Info("pod condition DisruptionTarget set", d.fields(e)...)
	case verdict.Unmark:
		//log: The pod was not killed or runs again, and the bridge set its condition
		//  DisruptionTarget to False.
		d.o.Log.Info("pod condition DisruptionTarget cleared",
			append(d.fields(e), "reason", v.Reason)...)
	}
}

// postponeDenied delays an entry until a role or a policy may allow the request.
func (d *Deliverer) postponeDenied(e *entry, request string, err error) {
	e.write.fail(time.Now(), maxDeniedBackoff, 0)
	if keys, first := d.failureKeys(e, "denied", request, err); first {
		//log: The API server rejected a request for a pod by a role, an admission policy or
		//  validation. The bridge retries with backoff.
		//do: See error. Install the role and the admission policies that belong to this version of
		//  the bridge.
		d.o.Log.Error("pod status request denied, retrying", keys...)
	}
}

// postponeFailed delays an entry after an error that may affect only this pod.
func (d *Deliverer) postponeFailed(e *entry, request string, err error) {
	retryAfter, _ := kube.RetryAfter(err)
	maxDelay := maxBackoff
	if e.write.slow { // a slow write takes one of maxInFlight places
		maxDelay = maxDeniedBackoff
	}
	e.write.fail(time.Now(), maxDelay, retryAfter)
	if keys, first := d.failureKeys(e, "failed", request, err); first {
		//log: The API server answered a request for a pod with an internal error, or only the read
		//  of this pod fails. The bridge retries with backoff.
		//do: See error. Check the API server, admission webhooks for pods/status and proxies.
		d.o.Log.Warn("pod status request failed, retrying", keys...)
	}
}

// failureKeys returns the log keys of a failed request. If the entry's last logged failure had the
// same cause and request, first is false and failureKeys logs at debug level.
func (d *Deliverer) failureKeys(e *entry, cause, request string, err error) (keys []any, first bool) {
	keys = append(d.fields(e), "what", request, "error", err)
	if first = e.write.reported != cause+request; !first {
		//log: A retry failed for the cause that was logged before.
		d.o.Log.Debug("pod status request failed again", keys...)
	}
	e.write.reported = cause + request
	return keys, first
}

// fields returns the keys of every log line about an entry.
func (d *Deliverer) fields(e *entry) []any {
	return []any{"pod", e.record.Pod.Title(), "uid", e.record.Pod.UID, "record", e.record.ID}
}
