package deliver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"jettison/api"
	"jettison/internal/base/retry"
	"jettison/internal/bridge/kube"
)

// world is an agent, and an API whose watch is never behind, in virtual time.
type world struct {
	mu sync.Mutex

	records []*api.Record
	gap     *api.RecordsGap
	away    bool          // the agent
	hangs   bool          // who asks it is not answered, and those stay so
	news    chan struct{} // closed when the agent has something to say, or goes
	follows int           // how often it was asked for records
	resyncs int           // that the pods are to be told once more

	pods     map[string]*v1.Pod
	behind   map[string]*v1.Pod // what the watch has said of them; nil: all of it
	version  int
	events   map[string]*v1.Event
	created  int      // events, each time
	failed   []string // pods, in the order in which they were
	patched  int
	alone    bool  // there are events alone
	mute     bool  // the kubelet does not tell how containers ended
	lost     bool  // writes are done, and nobody is told so
	answer   error // but this; nil: nothing
	asked    []time.Time
	askedFor []string
	fault    func(what string) error         // nil: none
	takes    func(what string) time.Duration // nil: no time
	under    int                             // requests that are under way
	most     int                             // that were at once
	changed  func()
}

// during runs a delivery in virtual time while a test does something, and returns what it logged. What is left undone in the end is an error.
func during(t *testing.T, do func(w *world)) (log string) {
	t.Helper()
	var text strings.Builder
	synctest.Test(t, func(t *testing.T) {
		w := &world{news: make(chan struct{}), pods: map[string]*v1.Pod{}, events: map[string]*v1.Event{}}
		d := New(Options{
			Node: "n1", Records: w, Pods: copies{w}, API: w, Log: slog.New(slog.NewTextHandler(&text, nil)),
			WriteStatus: func(ctx context.Context) (bool, error) {
				err := w.ask(ctx, "version")
				w.mu.Lock()
				defer w.mu.Unlock()
				return !w.alone, err
			},
		})
		w.changed = d.Changed
		ctx, cancel := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { d.Run(ctx) })
		do(w)
		time.Sleep(2 * time.Hour) // whatever was to be waited for
		synctest.Wait()
		cancel()
		run.Wait()
		if len(d.queue.entries) > 0 || len(d.gaps.events) > 0 {
			t.Errorf("%d records are not over, %d gaps are not told", len(d.queue.entries), len(d.gaps.events))
		}
	})
	return text.String()
}

// is asks for something under the lock, when nothing moves.
func is[T any](w *world, get func() T) T {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return get()
}

// set changes what there is, and has all see it.
func (w *world) set(f func()) {
	w.mu.Lock()
	f()
	close(w.news)
	w.news = make(chan struct{})
	w.mu.Unlock()
	w.changed()
}

// tells has the agent say something of an eviction that it has told of, and nobody else anything.
func (w *world) tells(r *api.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.records[slices.IndexFunc(w.records, func(o *api.Record) bool { return o.ID == r.ID })] = r
	close(w.news)
	w.news = make(chan struct{})
}

// begun tells that a pod was chosen, and that it is stopped.
func (w *world) begun(p *v1.Pod) api.Record {
	r := *record(p, time.Now())
	r.Outcome, r.Over, r.Emptied, r.Cleaned = api.OutcomeRunning, false, api.Stamp{}, api.Stamp{}
	first := r
	w.set(func() { w.records = append(w.records, &first) })
	return r
}

// emptied is a record of which nothing is left since, and with which the agent is not done.
func emptied(r api.Record) api.Record {
	r.Emptied = api.Stamp{Time: time.Now()}
	r.Cleaned = r.Emptied
	return r
}

// over is a record with which the agent is done.
func over(r api.Record) api.Record {
	r.Outcome, r.Over = api.OutcomeBack, true
	return r
}

// phase is that of a pod.
func (w *world) phase(name string) v1.PodPhase {
	return is(w, func() v1.PodPhase { return w.pods[name].Status.Phase })
}

// of has a fault be that of requests that begin with something.
func of(prefix string, err error) func(string) error {
	return func(what string) error {
		if strings.HasPrefix(what, prefix) {
			return err
		}
		return nil
	}
}

// taking has requests that begin with something take a time.
func taking(prefix string, took time.Duration) func(string) time.Duration {
	return func(what string) time.Duration {
		if strings.HasPrefix(what, prefix) {
			return took
		}
		return 0
	}
}

// runs makes a pod that runs.
func (w *world) runs(name string) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name)},
		Spec:       v1.PodSpec{RestartPolicy: v1.RestartPolicyAlways, Containers: []v1.Container{{Name: "c"}}},
		Status: v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{{
			Name: "c", State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(time.Now().Add(-time.Hour))}},
		}}},
	}
	w.set(func() { w.store(p) })
	return p
}

// store has a pod be another version of itself. The lock is held.
func (w *world) store(p *v1.Pod) {
	w.version++
	p.ResourceVersion = strconv.Itoa(w.version)
	w.pods[p.Name] = p
}

const message = "The node was low on resource: memory. "

// evicted tells that a pod was evicted, and that all of it is gone.
func (w *world) evicted(p *v1.Pod) *api.Record {
	r := record(p, time.Now())
	w.set(func() {
		r.ID = fmt.Sprintf("%s-%04x", r.ID, len(w.records))
		w.records = append(w.records, r)
	})
	return r
}

// record is that of a pod which was evicted, and of which nothing is left.
func record(p *v1.Pod, began time.Time) *api.Record {
	at := api.Stamp{Time: began}
	return &api.Record{
		ID: began.UTC().Format("20060102T150405.000000Z"), Outcome: api.OutcomeBack, Signal: "memory.available",
		Threshold: "memory.available<100Mi", Message: message, StatusReason: "Evicted", Disruption: true,
		Pod: api.Victim{UID: string(p.UID), Namespace: p.Namespace, Name: p.Name}, Began: at, Killed: at, Emptied: at, Cleaned: at, Over: true,
	}
}

func (w *world) FollowRecords(ctx context.Context, o api.RecordsOptions, each func(*api.RecordsLine) error) error {
	w.mu.Lock()
	w.follows++
	gap, hangs := w.gap, w.hangs
	w.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	if gap != nil && gap.Until > o.After {
		if err := each(&api.RecordsLine{Gap: gap}); err != nil {
			return err
		}
	}
	told := map[string]*api.Record{}
	for synced := false; ; {
		w.mu.Lock()
		records, news, away := slices.Clone(w.records), w.news, w.away
		w.mu.Unlock()
		if away {
			return errors.New("no agent")
		}
		for _, r := range records {
			if r.ID <= o.After || told[r.ID] == r {
				continue
			}
			told[r.ID] = r
			if err := each(&api.RecordsLine{Record: r}); err != nil {
				return err
			}
		}
		if !synced {
			synced = true
			if err := each(&api.RecordsLine{Synced: true}); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-news:
		}
	}
}

// limit is how long kube.Client waits for an answer.
func limit(ctx context.Context) time.Duration {
	if kube.HasWebhookTimeout(ctx) {
		return 40 * time.Second
	}
	return 10 * time.Second
}

// ask counts a request to the API, which may take its time.
func (w *world) ask(ctx context.Context, what string) error {
	w.mu.Lock()
	fault, takes := w.fault, w.takes
	w.asked, w.askedFor = append(w.asked, time.Now()), append(w.askedFor, what)
	w.under++
	w.most = max(w.most, w.under)
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		w.under--
		w.mu.Unlock()
	}()
	if takes != nil {
		took, limit := takes(what), limit(ctx)
		if retry.Sleep(ctx, min(took, limit)); ctx.Err() != nil {
			return ctx.Err()
		}
		if took > limit {
			return context.DeadlineExceeded
		}
	}
	if fault == nil {
		return nil
	}
	return fault(what)
}

func (w *world) Pod(ctx context.Context, _, name string) (*v1.Pod, error) {
	if name == "" { // as kube.Client, which asks nobody
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, name)
	}
	if err := w.ask(ctx, "get "+name); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.pods[name]; p != nil {
		return p, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, name)
}

func (w *world) PatchPodStatus(ctx context.Context, _, name string, body []byte) (*v1.Pod, error) {
	if err := w.ask(kube.WithWebhookTimeout(ctx), "patch "+name); err != nil { // as kube.Client

		return nil, err
	}
	var p v1.Pod
	if err := json.Unmarshal(body, &p); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.pods[name]
	if was == nil || was.UID != p.UID || was.ResourceVersion != p.ResourceVersion {
		return nil, apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, name, errors.New("modified"))
	}
	next := was.DeepCopy()
	if next.Annotations == nil {
		next.Annotations = map[string]string{}
	}
	maps.Copy(next.Annotations, p.Annotations)
	if p.Status.Phase != "" {
		for i := range next.Status.ContainerStatuses { // as its kubelet tells, unless a test has it say nothing
			if s := &next.Status.ContainerStatuses[i].State; s.Running != nil && !w.mute {
				*s = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{StartedAt: s.Running.StartedAt, ExitCode: 137}}
			}
		}
		next.Status.Phase, next.Status.Reason, next.Status.Message = p.Status.Phase, p.Status.Reason, p.Status.Message
		w.failed = append(w.failed, name)
	}
	for _, c := range p.Status.Conditions {
		next.Status.Conditions = slices.DeleteFunc(next.Status.Conditions, func(o v1.PodCondition) bool { return o.Type == c.Type })
		next.Status.Conditions = append(next.Status.Conditions, c)
	}
	w.patched++
	w.store(next)
	w.changed()
	if w.lost {
		return nil, cmp.Or(w.answer, errors.New("connection reset by peer"))
	}
	return next, nil
}

// CreateEvent keeps an event; a second one of a name is none, as with kube's.
func (w *world) CreateEvent(ctx context.Context, e *v1.Event) error {
	if err := w.ask(ctx, "event "+e.Name); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events[e.Namespace+"/"+e.Name] = e
	w.created++
	return nil
}

// reasons are those of the events that there are, sorted. The lock is held.
func (w *world) reasons() (out []string) {
	for _, e := range w.events {
		out = append(out, e.Reason)
	}
	slices.Sort(out)
	return out
}

// copies is the copy of the node's pods.
type copies struct{ w *world }

func (c copies) Pod(_, name string) *v1.Pod {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if c.w.behind != nil {
		return c.w.behind[name]
	}
	return c.w.pods[name]
}

// Synced was when the agent had not evicted anybody yet.
func (copies) Synced() (time.Time, bool) { return time.Now().Add(-24 * time.Hour), true }

func (c copies) Resync() {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.w.resyncs++
}
