package eviction

import (
	"strings"
	"testing"
)

// The kubelet's grammar for evictionHard, case by case (cases A05 to A20), with its own error texts.
func TestParseHard(t *testing.T) {
	for _, c := range []struct {
		id, signal, value string
		want              string // the threshold as text; empty: switched off
		err               string
	}{
		{"A02", "memory.available", "150Mi", "memory.available<150Mi", ""},
		{"A03", "memory.available", "10%", "memory.available<10%", ""},
		{"A05", "nodefs.available", "10.5%", "nodefs.available<10.5%", ""},
		{"A06", "imagefs.inodesFree", "150Mi", "imagefs.inodesFree<150Mi", ""},
		{"A07", "memory.available", "0%", "", ""},
		{"A08", "memory.available", "100%", "", ""},
		{"A09", "mem.available", "150Mi", "", "unsupported eviction signal mem.available"},
		{"A10", "memory.available", "-150Mi", "", "eviction threshold memory.available must be positive: -150Mi"},
		{"A10", "memory.available", "0", "", "eviction threshold memory.available must be positive: 0"},
		{"A11", "memory.available", "-15%", "", "eviction percentage threshold memory.available must be >= 0%: -15%"},
		{"A12", "memory.available", "150%", "", "eviction percentage threshold memory.available must be <= 100%: 150%"},
		{"A19", "memory.available", "", "", "quantities must match the regular expression"},
		{"A19", "memory.available", "10..5%", "", "invalid syntax"},
		{"A20", "memory.available", "foo%", "", "invalid syntax"},
		{"A20", "memory.available", "12%345", "", "quantities must match the regular expression"},
	} {
		got, err := ParseHard(map[string]string{c.signal: c.value})
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s %s=%s: error %v, want %q", c.id, c.signal, c.value, err, c.err)
			}
			continue
		}
		text := ""
		if len(got) > 0 {
			text = got[0].String()
		}
		if err != nil || text != c.want {
			t.Errorf("%s %s=%s: got %q, %v, want %q", c.id, c.signal, c.value, text, err, c.want)
		}
	}
}

// A01, A13: nothing gives nothing, and one bad entry refuses the whole map.
func TestParseHardMaps(t *testing.T) {
	if got, err := ParseHard(nil); len(got) != 0 || err != nil {
		t.Errorf("A01: got %v, %v", got, err)
	}
	if _, err := ParseHard(map[string]string{"memory.available": "150Mi", "invalid.foo": "150Mi"}); err == nil {
		t.Error("A13: accepted")
	}
	if got, err := ParseHard(DefaultHard()); len(got) != 5 || err != nil {
		t.Errorf("the defaults: got %v, %v", got, err)
	}
}

// The kubelet multiplies by a 32-bit float: 10% of 1000Mi is 104857601.
func TestPercentagesAreTheKubelets(t *testing.T) {
	got, err := ParseHard(map[string]string{"memory.available": "10%"})
	if err != nil {
		t.Fatal(err)
	}
	if v := got[0].Value.Of(1000 << 20); v != 104857601 {
		t.Errorf("10%% of 1000Mi is %d, the kubelet has 104857601", v)
	}
}

// The kubelet accepts NaN%, and never meets it.
func TestNaNIsNeverMet(t *testing.T) {
	got, err := ParseHard(map[string]string{"memory.available": "NaN%"})
	if err == nil && got[0].Value.Of(1<<40) != 0 {
		t.Errorf("NaN%% of 1Ti is %d", got[0].Value.Of(1<<40))
	}
}

func FuzzParseHard(f *testing.F) {
	for _, v := range []string{"100Mi", "10%", "-1", "1e400", "NaN%", "١٠%", "100.0%"} {
		f.Add("memory.available", v)
	}
	f.Fuzz(func(t *testing.T, signal, value string) {
		got, err := ParseHard(map[string]string{signal: value})
		if err == nil && len(got) > 1 {
			t.Errorf("%q: %d thresholds of one entry", value, len(got))
		}
		for _, threshold := range got {
			threshold.Value.Of(1 << 40)
			_ = threshold.String()
		}
	})
}
