package nri

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"jettison/cri"
)

// ids returns the content of an index as text, for comparison with a plain list.
func ids(x Pods) map[string][]string {
	out := map[string][]string{}
	for uid, p := range x {
		for _, s := range p.Sandboxes {
			out[uid] = append(out[uid], fmt.Sprintf("%s ready=%v", s.ID, s.Ready))
		}
		for _, c := range p.Containers {
			out[uid] = append(out[uid], c.SandboxID+"/"+c.ID+" "+c.State.String())
		}
		slices.Sort(out[uid])
	}
	return out
}

// After random events the index equals a plain list of live objects. Snapshots never change.
func TestIndexMatchesPlainList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type box struct {
			uid   string
			ready bool
			has   map[string]cri.ContainerState
		}
		plain := map[string]*box{}
		p, err := New(Options{})
		if err != nil {
			t.Fatal(err)
		}
		now := time.Unix(1e9, 0)
		before, text := p.index.snapshot(), map[string][]string{}
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			n := rapid.IntRange(0, 3).Draw(t, "sandbox")
			sid, uid := fmt.Sprint("s", n), fmt.Sprint("u", n/2)
			cid := fmt.Sprint("c", rapid.IntRange(0, 2).Draw(t, "container"))
			kind := rapid.SampledFrom([]uint64{eventRunPod, eventStopPod, eventRemovePod, eventCreate, eventPostStart, eventPostUpdate, eventStop, eventRemove}).Draw(t, "kind")
			e := event{hasPod: true, pod: cri.PodSandbox{ID: sid, UID: uid}}
			if kind != eventRunPod && kind != eventStopPod && kind != eventRemovePod {
				e.hasCtr, e.container = true, cri.Container{ID: cid, Name: cid, State: cri.Running}
			}
			b := plain[sid]
			switch kind {
			case eventStopPod:
				if b != nil {
					b.ready = false
					maps.DeleteFunc(b.has, func(_ string, state cri.ContainerState) bool { return state == cri.Created })
				}
			case eventRemovePod:
				delete(plain, sid)
			case eventStop, eventRemove:
				if b != nil {
					delete(b.has, cid)
				}
			default:
				if b == nil {
					b = &box{uid, true, map[string]cri.ContainerState{}}
					plain[sid] = b
				}
				b.ready = b.ready || kind == eventPostStart
				if e.hasCtr {
					b.has[cid] = cri.Running
					if kind == eventCreate {
						b.has[cid] = cri.Created
					}
				}
			}
			p.apply(now, kind, e)
			want := map[string][]string{}
			for sid, b := range plain {
				want[b.uid] = append(want[b.uid], fmt.Sprintf("%s ready=%v", sid, b.ready))
				for cid, state := range b.has {
					want[b.uid] = append(want[b.uid], sid+"/"+cid+" "+state.String())
				}
			}
			for _, w := range want {
				slices.Sort(w)
			}
			next := p.index.snapshot()
			if d := cmp.Diff(text, ids(before), cmpopts.EquateEmpty()); d != "" {
				t.Fatalf("a snapshot was changed by a later one: %s", d)
			}
			before, text = next, ids(next)
			if d := cmp.Diff(want, text, cmpopts.EquateEmpty()); d != "" {
				t.Fatal(d)
			}
		}
		n := 0
		for _, b := range plain {
			n += len(b.has)
		}
		if p.index.containers != n {
			t.Fatalf("index counts %d containers, want %d", p.index.containers, n)
		}
	})
}

func TestHoldOffs(t *testing.T) {
	var h HoldOffs
	now := time.Unix(1e9, 0)
	if _, held := h.Held(now, "a"); held || h.All() != nil {
		t.Error("pod is held off without a hold")
	}
	h.Set(now, "a", Hold{now.Add(time.Second), "one"})
	h.Set(now, "b", Hold{now.Add(time.Minute), "two"})
	if hold, held := h.Held(now, "a"); !held || hold.Reason != "one" {
		t.Errorf("Held() = %+v, %v, want the hold", hold, held)
	}
	if _, held := h.Held(now.Add(time.Second), "a"); held {
		t.Error("pod is held off after the end of its hold")
	}
	h.Set(now.Add(time.Second), "c", Hold{now.Add(time.Minute), "three"})
	all := h.All()
	if d := cmp.Diff([]string{"b", "c"}, slices.Sorted(maps.Keys(all))); d != "" {
		t.Error(d)
	}
	for i := range maxHolds + 5 {
		h.Set(now, fmt.Sprint(i), Hold{now.Add(time.Hour + time.Duration(i)), ""})
	}
	if _, held := h.Held(now, "c"); held || len(h.All()) != maxHolds {
		t.Errorf("holds kept = %d, want the maximum", len(h.All()))
	}
	if len(all) != 2 {
		t.Error("a copy of the holds was changed")
	}
}

// The loop writes while the plugin reads.
func TestHoldOffsSetAtOnce(t *testing.T) {
	var h HoldOffs
	var wg sync.WaitGroup
	now := time.Now()
	for i := range 4 {
		wg.Go(func() {
			for range 500 {
				h.Set(now, fmt.Sprint(i), Hold{Until: now.Add(time.Hour)})
				if _, held := h.Held(now, fmt.Sprint(i)); !held {
					t.Error("pod is not held off after SetAtOnce")
				}
			}
		})
	}
	wg.Wait()
}

// Containers with the same values for files of their cgroups share one map.
func TestEqualUnifiedIsShared(t *testing.T) {
	x := newIndex()
	s := x.put(cri.PodSandbox{ID: "s", UID: "u"})
	group := func() map[string]string { return map[string]string{"memory.oom.group": "1"} }
	for i, unified := range []map[string]string{group(), nil, group(), {"memory.high": "1"}} {
		x.start(s, cri.Container{ID: fmt.Sprint(i), State: cri.Running, Unified: unified})
	}
	c := x.snapshot()["u"].Containers
	if !maps.Equal(c[0].Unified, group()) || c[1].Unified != nil || c[3].Unified["memory.high"] != "1" || len(c[3].Unified) != 1 {
		t.Fatalf("unified of 4 containers = %v, %v, %v, %v", c[0].Unified, c[1].Unified, c[2].Unified, c[3].Unified)
	}
	if reflect.ValueOf(c[0].Unified).Pointer() != reflect.ValueOf(c[2].Unified).Pointer() {
		t.Errorf("two containers have maps of their own with %v, want one", c[2].Unified)
	}
}
