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

// memoryMore is what clients may have the store keep alive, in bytes. The container's limit in deploy/base/daemonset.yaml is 64 MiB, and at rest
// the agent has 28 resident (docs/build/performance.md), so 36 are left. The collector lets the heap grow by 30 % beyond what is alive
// (internal/node/selfprotect), so 27 may be; 5 are for the one pod that is being decoded, its text included. What is resident depends on when the
// collector runs, so it is no measure.
const memoryMore = 22 << 20

// fat are ways to have memory taken: many containers of few characters each, many words, and what is usual.
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

// However clients fill the store, and put all anew at once, the agent has the memory for it.
func TestWhatClientsPutFitsTheMemory(t *testing.T) {
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
		for ; ; n++ { // until it is full
			if _, _, err := s.Put(list(fmt.Sprint("u", n, "-"), 1, nil), false, ByRoot); err != nil {
				break
			}
		}
		peak := &peak{store: s}
		peak.look()
		var clients sync.WaitGroup
		for at := range 2 { // they may replace all by as much at the same time
			clients.Go(func() {
				_, _, err := s.Put(list(fmt.Sprint("v", at, "-"), n, peak.look), true, ByRoot)
				if !errors.Is(err, ErrFull) && !errors.Is(err, ErrBusy) {
					t.Errorf("%s: both fit beside what was there (%v)", kind, err)
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

// alive is what of the heap is reachable, in bytes.
func alive() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// peak is the most that is alive while a store takes pods.
type peak struct {
	store *Store

	mu     sync.Mutex
	bytes  int64
	staged int64 // at most
}

// look measures between two pods that are decoded, if there is notably more than when it did last.
func (p *peak) look() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.store.decoding.Lock()
	defer p.store.decoding.Unlock()
	if staged := p.store.staged.Load(); p.bytes == 0 || staged > p.staged+64<<10 {
		p.staged = staged
		p.bytes = max(p.bytes, alive())
	}
}

// endless is a list of so many pods, made as it is read of the text of one with the uid UID.
type endless struct {
	text, prefix string
	n, at        int
	rest         io.Reader
	between      func() // is called before each; nil: nothing is
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
