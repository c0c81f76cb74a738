package podstore

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"jettison/internal/base/podjson"
)

// labelled returns a pod with text and object a little larger than so many bytes.
func labelled(uid string, bytes int) string {
	return `{"metadata":{"uid":"` + uid + `","namespace":"a","name":"a","labels":{"a":"` + strings.Repeat("v", bytes) + `"}},"spec":{"containers":[{}]}}`
}

// wordy returns a pod with the longest allowed text, of which almost nothing is kept.
func wordy(uid string) string {
	begin := `{"metadata":{"uid":"` + uid + `","namespace":"a","name":"a","annotations":{"a":"`
	end := `"}},"spec":{"containers":[{}]}}`
	return begin + strings.Repeat("v", podjson.MaxPod-len(begin)-len(end)) + end
}

// filled returns a store with pods of about half a MiB, of at least so many bytes, put by a role.
func filled(t *testing.T, by Role, bytes int64) *Store {
	t.Helper()
	s := New()
	for n := 0; s.held.Load() < bytes; n++ {
		puts(t, s, by, false, labelled(fmt.Sprint("old", n), 500<<10))
	}
	return s
}

// However full the store is, a member may request admission for a pod, and put one that fits, of
// the maximal size.
func TestFullStoreAcceptsLargePodOfMember(t *testing.T) {
	for _, by := range []Role{ByRoot, ByMember} {
		s := filled(t, by, int64(by.memory()-600<<10))
		for _, pod := range []string{wordy("new"), labelled("new", 1000<<10)} {
			_, done, err := s.Ask(strings.NewReader(pod), FormJSON, ByMember)
			if err != nil {
				t.Errorf("store full of role %v, Ask of a member: %v", by, err)
			}
			done()
		}
		if _, _, err := s.Put(strings.NewReader("["+wordy("new")+"]"), false, ByMember); err != nil {
			t.Errorf("store full of role %v, Put of a member: %v", by, err)
		}
	}
}

// A body that does not fit next to known pods gets ErrFull, with a remedy.
func TestFullStoreErrors(t *testing.T) {
	large := []string{labelled("x", 900<<10), labelled("y", 900<<10)}
	small := []string{labelled("x", 300<<10), labelled("y", 300<<10)}
	for _, c := range []struct {
		full, by Role
		pods     []string
		replace  bool
		want     string // empty: accepted
	}{
		{ByRoot, ByMember, large, false, "full: the agent holds 7."},
		{ByRoot, ByMember, large, true, "full: the agent holds 7."},
		{ByRoot, ByMember, small, false, "full: the limit is 8Mi of pods, with these there would be 8."},
		{ByRoot, ByMember, small, true, "full: the limit is 8Mi of pods, with these there would be 8."},
		{ByMember, ByMember, small, false, "full: the limit is 7Mi of pods from members of socketGroup, with these there would be 7."},
		{ByMember, ByMember, small, true, ""},
		{ByRoot, ByRoot, large, false, "full: the limit is 8Mi of pods, with these there would be 9."},
		{ByRoot, ByRoot, large, true, ""},
		{ByMember, ByRoot, large, false, ""},
	} {
		s := filled(t, c.full, int64(c.full.memory()-500<<10))
		before := s.Snapshot()
		_, _, err := s.Put(strings.NewReader("["+strings.Join(c.pods, ",")+"]"), c.replace, c.by)
		if c.want == "" && err == nil {
			continue
		}
		if c.want == "" || !errors.Is(err, ErrFull) || errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), c.want) ||
			!strings.Contains(err.Error(), "delete") || s.Snapshot() != before {
			t.Errorf("store full of role %v, put by %v, replace %v: error %v, want %s", c.full, c.by, c.replace, err, c.want)
		}
	}
}

// Root's pods always fit: the largest objects of members are dropped, an ordinary one is not.
func TestMembersObjectsAreDroppedForRoot(t *testing.T) {
	for _, replace := range []bool{false, true} {
		s := filled(t, ByMember, maxMembers-600<<10)
		puts(t, s, ByMember, false, text("ordinary", 1))
		var pods, uids []string
		for i := range 14 { // 7 MiB
			uids = append(uids, fmt.Sprint("new", i))
			pods = append(pods, labelled(uids[i], 500<<10))
		}
		slices.Sort(uids)
		if _, _, err := s.Put(strings.NewReader("["+strings.Join(pods, ",")+"]"), replace, ByRoot); err != nil {
			t.Errorf("Put of root with replace %v: %v", replace, err)
			continue
		}
		var roots, members []string
		for _, o := range s.Snapshot().Objects {
			if s.Snapshot().Members[string(o.UID)] {
				members = append(members, string(o.UID))
			} else {
				roots = append(roots, string(o.UID))
			}
		}
		slices.Sort(roots)
		if !slices.Equal(roots, uids) || s.held.Load() > MaxMemory || s.staged.Load() != 0 || slices.Contains(members, "ordinary") == replace {
			t.Errorf("replace %v: objects of root = %v, of members = %v, %d bytes; want all of root's and small ones", replace, roots, members, s.held.Load())
		}
	}
}

// If root's pods would not fit even without members' objects, none is dropped.
func TestNoObjectIsDroppedForTooMuch(t *testing.T) {
	s := filled(t, ByRoot, 6<<20)
	puts(t, s, ByMember, false, text("ordinary", 1))
	before := s.Snapshot()
	var pods []string
	for i := range 15 { // 7.5 MiB
		pods = append(pods, labelled(fmt.Sprint("new", i), 500<<10))
	}
	if _, _, err := s.Put(strings.NewReader("["+strings.Join(pods, ",")+"]"), true, ByRoot); !errors.Is(err, ErrFull) || s.Snapshot() != before {
		t.Errorf("Put of too much: error %v, members' objects %v; want ErrFull and no change", err, s.Snapshot().Members)
	}
}

// If members' requests in flight use the budget, root gets ErrBusy. Until root retries, members
// cannot put much.
func TestMembersYieldToRoot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		large := func(by Role) error {
			_, _, err := s.Put(&endless{text: labelled("UID", 500<<10), prefix: "x", n: 6}, true, by)
			return err
		}
		stalled := &request{s: s, by: ByMember}
		stalled.charge(0, maxBoth-1<<20)
		if err := large(ByRoot); !errors.Is(err, ErrBusy) {
			t.Errorf("Put of root with stalled members: error %v, want ErrBusy", err)
		}
		stalled.release()
		if err := large(ByMember); !errors.Is(err, ErrBusy) {
			t.Errorf("Put of a member before root's retry: error %v, want ErrBusy", err)
		}
		puts(t, s, ByMember, false, text("ordinary", 1))
		if _, ok := s.Hold(1 << 20); !ok {
			t.Error("Hold for a member refused before root's retry")
		}
		if err := large(ByRoot); err != nil {
			t.Errorf("retry of root after ErrBusy: %v", err)
		}
		time.Sleep(yieldFor)
		if err := large(ByMember); err != nil {
			t.Errorf("Put of a member after yieldFor: %v", err)
		}
	})
}
