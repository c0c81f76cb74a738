package podstore

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func puts(t *testing.T, s *Store, by Role, replace bool, pods ...string) {
	t.Helper()
	if _, _, err := s.Put(strings.NewReader("["+strings.Join(pods, ",")+"]"), replace, by); err != nil {
		t.Fatal(err)
	}
}

// published returns each object with its priority and the role that put it.
func published(s *Snapshot) (out []string) {
	for _, o := range s.Objects {
		role := "root's"
		if s.Members[string(o.UID)] {
			role = "a member's"
		}
		out = append(out, string(o.UID)+" "+strings.Repeat("!", int(*o.Spec.Priority))+" "+role)
	}
	return out
}

// Root's object of a pod counts, whatever a member puts, replaces or deletes, in any order.
func TestRootOverridesMembers(t *testing.T) {
	s := New()
	want := func(step string, all ...string) {
		t.Helper()
		if got := published(s.Snapshot()); !slices.Equal(got, all) {
			t.Errorf("objects after step %q = %q, want %q", step, got, all)
		}
	}
	puts(t, s, ByRoot, false, text("a", 1))
	puts(t, s, ByMember, false, text("a", 2), text("b", 2))
	want("a member puts it again", "a ! root's", "b !! a member's")
	puts(t, s, ByMember, true, text("b", 3))
	want("a member replaces all", "a ! root's", "b !!! a member's")
	if err := s.Delete("a", ByMember); !errors.Is(err, ErrOwnedByRoot) {
		t.Error(err)
	}
	want("a member deletes it", "a ! root's", "b !!! a member's")
	puts(t, s, ByRoot, false, text("b", 1))
	want("root comes later", "a ! root's", "b ! root's")
	puts(t, s, ByRoot, true, text("c", 1))
	want("root replaces all", "c ! root's")
}
