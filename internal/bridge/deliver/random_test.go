package deliver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"jettison/api"
	"jettison/internal/base/retry"
	"jettison/internal/bridge/kube"
)

// unruly is a world's API that takes its time, fails, and may have done what it says that it has not, until it is told to behave.
type unruly struct {
	*world
	until time.Time

	own      sync.Mutex
	random   *rand.Rand
	fails    map[types.UID]int // how often a pod was made Failed
	events   int               // under way
	together int               // that were at once
}

func (u *unruly) below(n int) int {
	u.own.Lock()
	defer u.own.Unlock()
	return u.random.IntN(n)
}

// failure is one of those that a client may see; done: of what was done.
func (u *unruly) failure(done bool) error {
	all := []error{
		errors.New("connection reset"), context.DeadlineExceeded, status(503), status(500), apierrors.NewTooManyRequests("later", 1+u.below(30)),
		status(403), status(422), status(409),
	}
	if done {
		all = all[:4]
	}
	return all[u.below(len(all))]
}

// behaves takes up to a minute of its time, or fails, or neither.
func (u *unruly) behaves(ctx context.Context, done bool) error {
	if time.Now().After(u.until) {
		return ctx.Err()
	}
	if u.below(3) == 0 {
		took := time.Duration(u.below(60_000)) * time.Millisecond
		if u.below(2) == 0 {
			took /= 20
		}
		if retry.Sleep(ctx, min(took, limit(ctx))); ctx.Err() != nil {
			return ctx.Err()
		}
		if took > limit(ctx) {
			return context.DeadlineExceeded
		}
	}
	if u.below(3) == 0 {
		return u.failure(done)
	}
	return nil
}

func (u *unruly) Pod(ctx context.Context, namespace, name string) (*v1.Pod, error) {
	if err := u.behaves(ctx, false); err != nil {
		return nil, err
	}
	return u.world.Pod(context.Background(), namespace, name)
}

func (u *unruly) PatchPodStatus(ctx context.Context, namespace, name string, body []byte) (*v1.Pod, error) {
	ctx = kube.WithWebhookTimeout(ctx) // as kube.Client
	if err := u.behaves(ctx, false); err != nil {
		return nil, err
	}
	pod, err := u.world.PatchPodStatus(context.Background(), namespace, name, body)
	var written v1.Pod
	if wrong := json.Unmarshal(body, &written); wrong != nil {
		return nil, wrong
	}
	if err == nil && written.Status.Phase == v1.PodFailed {
		u.own.Lock()
		u.fails[written.UID]++
		u.own.Unlock()
	}
	if late := u.behaves(ctx, true); late != nil {
		return nil, late
	}
	return pod, err
}

func (u *unruly) CreateEvent(ctx context.Context, e *v1.Event) error {
	u.count(1)
	defer u.count(-1)
	if err := u.behaves(ctx, false); err != nil {
		return err
	}
	if err := u.world.CreateEvent(context.Background(), e); err != nil {
		return err
	}
	return u.behaves(ctx, true)
}

func (u *unruly) count(n int) {
	u.own.Lock()
	defer u.own.Unlock()
	u.events += n
	u.together = max(u.together, u.events)
}

// victim is a pod of which an eviction is told.
type victim struct {
	pod    *v1.Pod
	record string
	lives  bool // it is let go of
	doubts int  // events that said so before it died after all
}

// evict tells of an eviction at once, or by steps, of which the last may be that the pod is let go of.
func (u *unruly) evict(p *v1.Pod) *victim {
	out := &victim{pod: p}
	if u.below(3) > 0 {
		out.record = u.evicted(p).ID
		return out
	}
	end := *record(p, time.Now())
	end.ID = fmt.Sprintf("%s-%04x", end.ID, len(u.records))
	chosen := end
	chosen.Outcome, chosen.Over, chosen.Killed, chosen.Emptied, chosen.Cleaned = api.OutcomeRunning, false, api.Stamp{}, api.Stamp{}, api.Stamp{}
	if out.lives = u.below(4) == 0; out.lives {
		end.Outcome, end.Killed, end.Emptied, end.Cleaned = api.OutcomeAbandoned, api.Stamp{}, api.Stamp{}, api.Stamp{}
	}
	u.set(func() { u.records = append(u.records, &chosen) })
	time.Sleep(time.Duration(u.below(30_000)) * time.Millisecond)
	if !out.lives && u.below(2) == 0 {
		out.doubts = 1
		undying := chosen
		undying.Outcome = api.OutcomeUndying
		u.tells(&undying)
		time.Sleep(time.Duration(u.below(60_000)) * time.Millisecond)
		dead := emptied(undying)
		u.tells(&dead)
		time.Sleep(time.Duration(u.below(3_000)) * time.Millisecond)
		end.Emptied, end.Cleaned = dead.Emptied, dead.Cleaned
	}
	u.tells(&end)
	out.record = end.ID
	return out
}

// lags has the watch stay behind for up to ten seconds, or be level again.
func (u *unruly) lags() {
	u.set(func() {
		if u.behind != nil || u.below(2) == 0 {
			u.behind = nil
			return
		}
		u.behind = maps.Clone(u.pods)
	})
	time.Sleep(time.Duration(u.below(10_000)) * time.Millisecond)
}

// replace has a pod go, or be another of the same name.
func (u *unruly) replace(p *v1.Pod) {
	u.set(func() {
		delete(u.pods, p.Name)
		if u.below(2) == 0 {
			other := p.DeepCopy()
			other.UID += "-another"
			other.Status.Phase, other.Annotations = v1.PodRunning, nil
			u.store(other)
		}
	})
}

// Whatever an API does for half an hour, while pods are evicted, let go of, replaced and deleted, and bridges start anew: then each victim that
// is there is Failed, by its record and once, nobody else is, each has its event, and nothing is left under way.
func TestWhateverAnAPIDoes(t *testing.T) {
	seeds := uint64(40)
	if testing.Short() { // the race detector of Go 1.26 may crash in virtual time; golang.org/issue/78156 is like it
		seeds = 15
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			w := &world{news: make(chan struct{}), pods: map[string]*v1.Pod{}, events: map[string]*v1.Event{}}
			u := &unruly{
				world: w, until: time.Now().Add(30 * time.Minute), random: rand.New(rand.NewPCG(seed, 1)), fails: map[types.UID]int{},
			}
			d, stop := u.bridge(t)
			var all []*victim
			for i := range 1 + u.below(60) {
				time.Sleep(time.Duration(u.below(4)*u.below(10_000)) * time.Millisecond)
				all = append(all, u.evict(w.runs(fmt.Sprint("p", i))))
				if u.below(6) == 0 {
					u.replace(all[u.below(len(all))].pod)
				}
				u.lags()
				if u.below(30) == 0 {
					u.set(func() { u.behind = nil }) // a bridge begins with a list
					stop()
					d, stop = u.bridge(t)
				}
			}
			u.set(func() { u.behind = nil })
			time.Sleep(time.Until(u.until) + 15*time.Minute)
			synctest.Wait()
			for _, v := range all {
				u.check(t, seed, v)
			}
			time.Sleep(2 * time.Hour)
			if stop(); d.events.inFlight || len(d.queue.inFlight) > 0 || len(d.queue.entries) > 0 || u.together > 2 { // two where a bridge began before the other's was answered
				t.Errorf("seed %d: sending %v, writing %d, %d records, %d events at once", seed, d.events.inFlight, len(d.queue.inFlight), len(d.queue.entries), u.together)
			}
		})
	}
}

// bridge runs one until it is stopped, which is at once.
func (u *unruly) bridge(t *testing.T) (d *Deliverer, stop func()) {
	d = New(Options{
		Node: "n1", Records: u.world, Pods: copies{u.world}, API: u, Log: slog.New(slog.DiscardHandler),
		WriteStatus: func(ctx context.Context) (bool, error) { return true, u.behaves(ctx, false) },
	})
	u.mu.Lock()
	u.changed = d.Changed
	u.mu.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { d.Run(ctx) })
	return d, func() {
		began := time.Now()
		cancel()
		if run.Wait(); time.Since(began) > 0 {
			t.Errorf("it ended after %v", time.Since(began))
		}
	}
}

// check finds what became of a victim.
func (u *unruly) check(t *testing.T, seed uint64, v *victim) {
	u.mu.Lock()
	defer u.mu.Unlock()
	p := u.pods[v.pod.Name]
	failed := p != nil && p.Status.Phase == v1.PodFailed
	switch {
	case p == nil:
	case p.UID != v.pod.UID:
		if failed || p.Annotations[api.AnnotationEvicted] != "" {
			t.Errorf("seed %d: %s, another, is failed", seed, p.Name)
		}
	case v.lives:
		for _, c := range p.Status.Conditions {
			if failed || c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue {
				t.Errorf("seed %d: %s was let go of: %+v", seed, p.Name, p.Status)
			}
		}
	case !failed || p.Annotations[api.AnnotationEvicted] != v.record:
		t.Errorf("seed %d: %s of %s is %s, %v", seed, p.Name, v.record, p.Status.Phase, p.Annotations)
	}
	if n := u.fails[v.pod.UID]; n > 1 {
		t.Errorf("seed %d: %s was failed %d times", seed, v.pod.Name, n)
	}
	n := 0
	for _, e := range u.world.events {
		if e.InvolvedObject.UID == v.pod.UID {
			n++
		}
	}
	if n < 1 || n > 1+v.doubts {
		t.Errorf("seed %d: %s has %d events", seed, v.pod.Name, n)
	}
}
