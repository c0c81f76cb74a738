package podstore

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// memoryMore bounds the memory, in bytes, that clients can keep alive in the store. The container's
// limit in deploy/base/daemonset.yaml is 64 MiB, and at rest the agent has 28 resident
// (docs/build/performance.md), which leaves 36. The collector lets the heap grow by 30 % beyond
// what is alive (internal/node/selfprotect), so 27 may be alive; 5 are for the pod that is being
// decoded with its text. Resident memory depends on when the collector runs, so it is no measure.
const memoryMore = 22 << 20

// fat are pods that use much memory: many small containers, many labels, and an ordinary one.
var fat = map[string]func(uid string) string{
	"containers": func(uid string) string {
		return `{"metadata":{"uid":"` + uid + `","namespace":"a","name":"a"},"spec":{"containers":[` + strings.Repeat(`{"name":"c"},`, 199) + `{"name":"c"}]}}`
	},
	"labels": func(uid string) string {
		var b strings.Builder
		for i := range 8000 {
			fmt.Fprintf(&b, `,"k%d":"%s"`, i, strings.Repeat("v", 60))
		}
		return `{"metadata":{"uid":"` + uid + `","namespace":"a","name":"a","labels":{"a":"b"` + b.String() + `}},"spec":{"containers":[{"name":"c"}]}}`
	},
	"ordinary": func(uid string) string {
		return `{"metadata":{"uid":"` + uid + `","namespace":"a","name":"a","labels":{"app":"x","pod-template-hash":"y"}},"spec":{"containers":[` +
			`{"name":"c","resources":{"requests":{"memory":"1Gi","cpu":"1"},"limits":{"memory":"1Gi"}}}],` +
			`"volumes":[{"name":"t","emptyDir":{"sizeLimit":"1Gi"}}],"tolerations":[{"operator":"Exists"}]}}`
	},
}

// However clients fill the store and replace all pods at the same time, the memory stays bounded.
func TestMemoryOfClientsIsBounded(t *testing.T) {
	texts := map[string]string{}
	for kind, text := range fat {
		texts[kind] = text("UID")
	}
	for kind := range fat {
		list := func(prefix string, n int, between func()) io.Reader {
			return &endless{text: texts[kind], prefix: prefix, n: n, between: between}
		}
		before := alive()
		s := New()
		n := 0
		for ; ; n++ { // until the store is full
			if _, _, err := s.Put(list(fmt.Sprint("u", n, "-"), 1, nil), false, ByRoot); err != nil {
				break
			}
		}
		peak := &peak{store: s}
		peak.measure()
		var clients sync.WaitGroup
		for at := range 2 { // both replace all pods at the same time
			clients.Go(func() {
				_, _, err := s.Put(list(fmt.Sprint("v", at, "-"), n, peak.measure), true, ByRoot)
				if !errors.Is(err, ErrFull) && !errors.Is(err, ErrBusy) {
					t.Errorf("%s: second copy of a full store accepted, error %v, want ErrFull or ErrBusy", kind, err)
				}
			})
		}
		clients.Wait()
		if more := peak.bytes - before; n == 0 || more > memoryMore || peak.staged == 0 {
			t.Errorf("%s: %d pods, with %d bytes of new ones, keep %.1f MiB alive, want at most %d", kind, n, peak.staged, float64(more)/(1<<20), memoryMore>>20)
		} else {
			t.Logf("%s: %.1f MiB with %d pods and %d KiB of new ones", kind, float64(more)/(1<<20), n, peak.staged>>10)
		}
	}
}

// alive returns the size of the reachable heap, in bytes.
func alive() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// peak records the most memory that is alive while a store decodes pods.
type peak struct {
	store *Store

	mu     sync.Mutex
	bytes  int64
	staged int64 // at most
}

// measure measures between two decoded pods, if notably more is staged than at the last
// measurement.
func (p *peak) measure() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.store.decoding.Lock()
	defer p.store.decoding.Unlock()
	if staged := p.store.staged.Load(); p.bytes == 0 || staged > p.staged+64<<10 {
		p.staged = staged
		p.bytes = max(p.bytes, alive())
	}
}

// endless is a reader of a list of n pods, generated while it is read from the text of a pod with
// the uid UID.
type endless struct {
	text, prefix string
	n, at        int
	rest         io.Reader
	between      func() // called before each pod; may be nil
}

func (l *endless) Read(p []byte) (int, error) {
	for {
		if l.rest != nil {
			if n, err := l.rest.Read(p); n > 0 || err != io.EOF {
				return n, err
			}
		}
		if l.between != nil {
			l.between()
		}
		switch before, after, _ := strings.Cut(l.text, "UID"); {
		case l.at < l.n:
			sign := "["
			if l.at > 0 {
				sign = ","
			}
			l.rest = io.MultiReader(strings.NewReader(sign), strings.NewReader(before), strings.NewReader(fmt.Sprint(l.prefix, l.at)), strings.NewReader(after))
		case l.at == l.n:
			l.rest = strings.NewReader("]")
		default:
			return 0, io.EOF
		}
		l.at++
	}
}
