package config

import "testing"

// The default is to observe with a kubelet and to act without. A value in the file is always used.
func TestModes(t *testing.T) {
	for _, c := range []struct {
		mode            Mode
		without, beside bool
		resolved        [2]Mode
	}{
		{ModeUnset, true, false, [2]Mode{ModeAct, ModeObserve}},
		{ModeAct, true, true, [2]Mode{ModeAct, ModeAct}},
		{ModeObserve, false, false, [2]Mode{ModeObserve, ModeObserve}},
	} {
		if without, beside := c.mode.Acts(false), c.mode.Acts(true); without != c.without || beside != c.beside {
			t.Errorf("mode %q acts = %v without a kubelet, %v with one", c.mode, without, beside)
		}
		if got := [2]Mode{c.mode.Resolve(false), c.mode.Resolve(true)}; got != c.resolved {
			t.Errorf("mode %q resolves to %q with a kubelet", c.mode, got)
		}
	}
	for text, want := range map[string]Mode{"": ModeUnset, "disk: act\n": ModeAct, "disk: observe\n": ModeObserve, "disk: \"\"\n": ModeUnset, "disk: null\n": ModeUnset} {
		if l, err := Parse([]byte(own + text)); err != nil || l.Disk != want {
			t.Errorf("load mode %q: got %v, error %v", text, l, err)
		}
	}
	if _, err := Parse([]byte(own + "gc: maybe\n")); err == nil || err.Error() != `3: gc: "maybe": want one of [act observe]` {
		t.Error(err)
	}
}
