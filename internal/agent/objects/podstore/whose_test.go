package podstore

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func puts(t *testing.T, s *Store, by By, replace bool, pods ...string) {
	t.Helper()
	if _, _, err := s.Put(strings.NewReader("["+strings.Join(pods, ",")+"]"), replace, by); err != nil {
		t.Fatal(err)
	}
}

// says is what counts: each object with its priority and whose it is.
func says(s *Snapshot) (out []string) {
	for _, o := range s.Objects {
		whose := "root's"
		if s.Members[string(o.UID)] {
			whose = "a member's"
		}
		out = append(out, string(o.UID)+" "+strings.Repeat("!", int(*o.Spec.Priority))+" "+whose)
	}
	return out
}

// What root says of a pod stands, whatever a member of the socket's group puts, replaces or deletes, and whichever comes first.
func TestRootsWordStands(t *testing.T) {
	s := New()
	want := func(what string, all ...string) {
		t.Helper()
		if got := says(s.Snapshot()); !slices.Equal(got, all) {
			t.Errorf("%s: %q, want %q", what, got, all)
		}
	}
	puts(t, s, ByRoot, false, text("a", 1))
	puts(t, s, ByMember, false, text("a", 2), text("b", 2))
	want("a member puts it again", "a ! root's", "b !! a member's")
	puts(t, s, ByMember, true, text("b", 3))
	want("a member replaces all", "a ! root's", "b !!! a member's")
	if err := s.Delete("a", ByMember); !errors.Is(err, ErrRoots) {
		t.Error(err)
	}
	want("a member deletes it", "a ! root's", "b !!! a member's")
	puts(t, s, ByRoot, false, text("b", 1))
	want("root comes later", "a ! root's", "b ! root's")
	puts(t, s, ByRoot, true, text("c", 1))
	want("root replaces all", "c ! root's")
}
