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

// labelled is a pod whose object takes a little more than so many bytes, and its text likewise.
func labelled(uid string, bytes int) string {
	return `{"metadata":{"uid":"` + uid + `","namespace":"a","name":"a","labels":{"a":"` + strings.Repeat("v", bytes) + `"}},"spec":{"containers":[{}]}}`
}

// wordy is a pod of as much text as there may be, of which hardly anything is kept.
func wordy(uid string) string {
	begin := `{"metadata":{"uid":"` + uid + `","namespace":"a","name":"a","annotations":{"a":"`
	end := `"}},"spec":{"containers":[{}]}}`
	return begin + strings.Repeat("v", podjson.MaxPod-len(begin)-len(end)) + end
}

// filled has pods of about half a MiB, put by one, of so many bytes at least.
func filled(t *testing.T, by By, bytes int64) *Store {
	t.Helper()
	s := New()
	for n := 0; s.held.Load() < bytes; n++ {
		puts(t, s, by, false, labelled(fmt.Sprint("old", n), 500<<10))
	}
	return s
}

// However much is known, by whomever, a member may ask about a pod, and put one that fits, as large as a pod may be.
func TestAFullStoreTakesALargePodOfAMembers(t *testing.T) {
	for _, by := range []By{ByRoot, ByMember} {
		s := filled(t, by, int64(by.memory()-600<<10))
		for _, pod := range []string{wordy("new"), labelled("new", 1000<<10)} {
			_, done, err := s.Ask(strings.NewReader(pod), FormJSON, ByMember)
			if err != nil {
				t.Errorf("full of %v's, asking: %v", by, err)
			}
			done()
		}
		if _, _, err := s.Put(strings.NewReader("["+wordy("new")+"]"), false, ByMember); err != nil {
			t.Errorf("full of %v's: %v", by, err)
		}
	}
}

// What does not fit beside what is known is not too large, and who put it is told what to do.
func TestAFullStoreSaysThatItIsFull(t *testing.T) {
	large := []string{labelled("x", 900<<10), labelled("y", 900<<10)}
	small := []string{labelled("x", 300<<10), labelled("y", 300<<10)}
	for _, c := range []struct {
		full, by By
		pods     []string
		replace  bool
		want     string // empty: it is taken
	}{
		{ByRoot, ByMember, large, false, "full: the agent has 7."},
		{ByRoot, ByMember, large, true, "full: the agent has 7."},
		{ByRoot, ByMember, small, false, "full: the agent has room for 8 MiB of pods, and would have 8."},
		{ByRoot, ByMember, small, true, "full: the agent has room for 8 MiB of pods, and would have 8."},
		{ByMember, ByMember, small, false, "full: the agent has room for 7 MiB of pods that members of socketGroup put, and would have 7."},
		{ByMember, ByMember, small, true, ""},
		{ByRoot, ByRoot, large, false, "full: the agent has room for 8 MiB of pods, and would have 9."},
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
			t.Errorf("full of %v's, put by %v, replace %v: %v, want %s", c.full, c.by, c.replace, err, c.want)
		}
	}
}

// Root's pods have room whatever members have put: the largest of theirs make way, and an ordinary one does not.
func TestMembersObjectsMakeWayForRoots(t *testing.T) {
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
			t.Errorf("replace %v: %v", replace, err)
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
			t.Errorf("replace %v: root's are %v, members' %v, %d bytes", replace, roots, members, s.held.Load())
		}
	}
}

// What would not fit even without members' objects takes none of them.
func TestNoObjectMakesWayInVain(t *testing.T) {
	s := filled(t, ByRoot, 6<<20)
	puts(t, s, ByMember, false, text("ordinary", 1))
	before := s.Snapshot()
	var pods []string
	for i := range 15 { // 7.5 MiB
		pods = append(pods, labelled(fmt.Sprint("new", i), 500<<10))
	}
	if _, _, err := s.Put(strings.NewReader("["+strings.Join(pods, ",")+"]"), true, ByRoot); !errors.Is(err, ErrFull) || s.Snapshot() != before {
		t.Errorf("%v, members' are %v", err, s.Snapshot().Members)
	}
}

// Where members that are not done take all the room, root is told to try again; until it has, members begin nothing large.
func TestMembersYieldToRoot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		large := func(by By) error {
			_, _, err := s.Put(&endless{text: labelled("UID", 500<<10), prefix: "x", n: 6}, true, by)
			return err
		}
		stalled := &underway{s: s, by: ByMember}
		stalled.take(0, maxBoth-1<<20)
		if err := large(ByRoot); !errors.Is(err, ErrBusy) {
			t.Errorf("root beside members that stall: %v", err)
		}
		stalled.end()
		if err := large(ByMember); !errors.Is(err, ErrBusy) {
			t.Errorf("a member, while root is to try again: %v", err)
		}
		puts(t, s, ByMember, false, text("ordinary", 1))
		if _, ok := s.Hold(1 << 20); !ok {
			t.Error("a member's answer waits for root")
		}
		if err := large(ByRoot); err != nil {
			t.Errorf("root again: %v", err)
		}
		time.Sleep(yieldFor)
		if err := large(ByMember); err != nil {
			t.Errorf("a member later: %v", err)
		}
	})
}
