package deliver

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/api"
	"jettison/internal/bridge/kube"
)

// Writes of one pod may take long while all others are taken: a webhook holds them up, or the object is such that it takes the API server
// long. They are not waited for then.
const (
	// turn is how long a write is waited for before it is asked whether others would be taken.
	turn = time.Second
	// maxWriting bounds how many are on their way that nobody waits for: their answers may come together, and an author's pod is as large as
	// he likes.
	maxWriting = 4
)

// answer is what came of a write.
type answer struct {
	pod *v1.Pod
	err error
}

// patch writes a pod's status, has the answer taken, and returns what comes of that. It waits for it as long as nothing else could be done;
// where it does not the entry is busy until the answer is taken, in the loop.
func (d *Deliverer) patch(
	ctx context.Context, e *entry, body []byte, take func(context.Context, *v1.Pod, error) (again bool, err error),
) (again bool, err error) {
	r := e.record
	request, cancel := context.WithCancel(kube.Patiently(ctx))
	came := make(chan answer, 1)
	d.beside.Go(func() {
		pod, err := d.o.API.PatchPodStatus(request, r.Pod.Namespace, r.Pod.Name, body)
		came <- answer{pod, err}
	})
	if !e.slow {
		if a, ok := within(ctx, came, turn); ok {
			cancel()
			return take(ctx, a.pod, a.err)
		}
		away := d.readable(ctx, r.Pod)
		if away != nil || d.writing >= maxWriting {
			cancel()
			a := <-came
			switch {
			case !errors.Is(a.err, context.Canceled): // it came all the same
			case away != nil:
				a.err = away
			default:
				e.slow = true
				a.err = fmt.Errorf("patch pods/status: %d others are waited for: %w", d.writing, context.DeadlineExceeded)
			}
			return take(ctx, a.pod, a.err)
		}
	}
	e.busy, e.slow = true, true
	d.writing++
	d.beside.Go(func() {
		defer cancel()
		a := <-came
		read := false
		if kube.Means(a.err) == kube.Away {
			away := d.readable(ctx, r.Pod)
			if read = away == nil; !read && kube.Unanswered(a.err) {
				a.err = nobody{a.err}
			}
		}
		d.inLoop(ctx, func(ctx context.Context) {
			e.busy = false
			d.writing--
			_, err := take(ctx, a.pod, a.err)
			if err != nil && read {
				err = d.inVain(e, err)
			}
			if ctx.Err() == nil {
				d.heard(err)
			}
		})
	})
	return false, nil
}

// nobody is the error of a write that was not answered, nor was a read: it is not that of the one write.
type nobody struct{ error }

// readable asks for what a write is of that takes long or is not taken. An error: nobody answers, so this is no matter of the one write.
func (d *Deliverer) readable(ctx context.Context, pod api.Victim) error {
	_, err := d.o.API.Pod(ctx, pod.Namespace, pod.Name)
	if kube.Means(err) == kube.Away {
		return err
	}
	return nil
}

// inLoop has something done by the loop. It is for who waits beside it.
func (d *Deliverer) inLoop(ctx context.Context, do func(context.Context)) {
	select {
	case <-ctx.Done():
	case d.late <- do:
	}
}

// within waits for an answer. !ok: it has not come in time.
func within(ctx context.Context, came <-chan answer, limit time.Duration) (a answer, ok bool) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case a = <-came:
		return a, true
	case <-timer.C:
		return answer{}, false
	case <-ctx.Done():
		return answer{err: ctx.Err()}, true
	}
}
