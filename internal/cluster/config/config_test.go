package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

const header = "apiVersion: jettison/v1alpha1\nkind: ClusterConfiguration\n"

func TestErrorsNameLine(t *testing.T) {
	for text, want := range map[string]string{
		"":                                                         "line 1: the file is empty",
		"- 1\n":                                                    "line 1: want a mapping",
		"kind: AgentConfig\n":                                      `line 1: apiVersion "", kind "AgentConfig": want jettison/v1alpha1, ClusterConfiguration`,
		header + "doupt: false":                                    `line 3: unknown field "doupt": did you mean "doubt"?`,
		header + "doubt: 7":                                        `line 3: doubt: want true or false, got "7"`,
		header + "doubt: [1]":                                      `line 3: doubt: want true or false`,
		header + "\ndoubt: true\ndoubt: true":                      "line 5: doubt is set a second time, first on line 4",
		header + "nodeMonitorGracePeriod: 50":                      `line 3: nodeMonitorGracePeriod: want a duration such as 1m30s, got "50"`,
		header + "nodeMonitorGracePeriod: 0s":                      "line 3: nodeMonitorGracePeriod: 0s is not above 0",
		header + "nodeEvictionRate: -1":                            "line 3: nodeEvictionRate: -1 is not a rate",
		header + "nodeEvictionRate: .nan":                          "line 3: nodeEvictionRate: NaN is not a rate",
		header + "largeClusterSizeThreshold: 1.5":                  `line 3: largeClusterSizeThreshold: want a whole number, got "1.5"`,
		header + "largeClusterSizeThreshold: -1":                   "line 3: largeClusterSizeThreshold: -1 is negative",
		header + "unhealthyZoneThreshold: 55":                      "line 3: unhealthyZoneThreshold: 55 is not a share",
		header + "pressureTaint: soft":                             `line 3: pressureTaint: unknown value "soft": want prefer, hard or off`,
		header + "excludedNodes: ''":                               `line 3: excludedNodes: unknown value "": want taint or leave`,
		header + "---\n" + header:                                  "line 3: more than one document in the file",
		header + "a: b: c":                                         "not YAML",
		header + "mode: fence":                                     "line 3: mode: fence needs a check: set fenceCommand or fenceURL",
		header + "mode: act":                                       `line 3: mode: unknown value "act": want observe, fence or replace`,
		header + "fenceCommand: check":                             `line 3: fenceCommand: want a list of strings, got "check"`,
		header + "fenceCommand: [check]":                           `line 3: fenceCommand: "check": want the absolute path of the program`,
		header + "fenceURL: bmc/dead":                              `line 3: fenceURL: "bmc/dead": want http://HOST/`,
		header + "fenceURL: http://b\nfenceCommand: [/c]":          "line 3: fenceURL: fenceCommand is also set",
		header + "fenceURL: http://b\nfenceTimeout: 2m":            "line 4: fenceTimeout: 2m0s is above fenceAfter, 1m0s",
		header + "leaderElectLeaseDuration: 9s":                    "line 3: leaderElectLeaseDuration: renew deadline 10s: want more than 0 and less",
		header + "kubeAPIQPS: 0":                                   "line 3: kubeAPIQPS: 0 is not a rate",
		header + "address: '10270'":                                `line 3: address: "10270": want HOST:PORT`,
		header + "podEvictionRate: 2\nnodeStartupGracePeriod: -1s": "line 4: nodeStartupGracePeriod: -1s is not above 0",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error of %q = %v, want %s", text, err, want)
		}
	}
}

// Precedence: default < file < flag.
func TestFlagsOverrideFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte(header+"nodeMonitorGracePeriod: 40s\nnodeEvictionRate: 3\ndoubt: null\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	set := pflag.NewFlagSet("x", pflag.ContinueOnError)
	flags := AddFlags(set)
	if err := set.Parse([]string{"--node-eviction-rate=20", "--doubt=false"}); err != nil {
		t.Fatal(err)
	}
	c, err := Load(t.Context(), path)
	if err == nil {
		err = flags.Apply(c)
	}
	if err != nil || c.NodeMonitorGracePeriod != 40*time.Second || c.NodeEvictionRate != 20 || c.Doubt || c.UnhealthyZoneThreshold != 0.55 {
		t.Errorf("configuration = %+v, error %v, want 40s of the file and the flags", c, err)
	}
	if err := set.Parse([]string{"--unhealthy-zone-threshold=2"}); err != nil {
		t.Fatal(err)
	}
	if err := flags.Apply(c); err == nil || !strings.HasPrefix(err.Error(), "--unhealthy-zone-threshold: ") {
		t.Errorf("error of --unhealthy-zone-threshold=2 = %v, want the field", err)
	}
	if _, err := Load(t.Context(), path+"x"); err == nil {
		t.Error("Load of a missing file returns no error")
	}
}

// The defaults are kube-controller-manager's (1.37.2).
func TestDefaultsMatchUpstream(t *testing.T) {
	c := Default()
	if c.NodeMonitorPeriod != 5*time.Second || c.NodeMonitorGracePeriod != 50*time.Second || c.NodeStartupGracePeriod != time.Minute ||
		c.NodeEvictionRate != 0.1 || c.SecondaryNodeEvictionRate != 0.01 || c.LargeClusterSizeThreshold != 50 || c.UnhealthyZoneThreshold != 0.55 {
		t.Errorf("defaults = %+v, want those of kube-controller-manager", c)
	}
}

// Each field has a flag.
func TestEachFieldHasFlag(t *testing.T) {
	set := pflag.NewFlagSet("x", pflag.ContinueOnError)
	AddFlags(set)
	fields := reflect.TypeFor[Cluster]()
	for i := range fields.NumField() {
		name := fields.Field(i).Tag.Get("yaml")
		if name != "-" && set.Lookup(flagName(name)) == nil {
			t.Errorf("field %s has no flag --%s", fields.Field(i).Name, name)
		}
	}
}

// Without a mode the program observes, and knows that no mode was set.
func TestModeMustBeSetToAct(t *testing.T) {
	for _, c := range []struct {
		text, flag, mode string
		set              bool
	}{
		{"", "", Observe, false},
		{"doubt: true", "", Observe, false},
		{"mode: null", "", Observe, false},
		{"mode: observe", "", Observe, true},
		{"mode: replace", "", Replace, true},
		{"", "observe", Observe, true},
		{"", "replace", Replace, true},
		{"mode: replace", "observe", Observe, true},
	} {
		set := pflag.NewFlagSet("x", pflag.ContinueOnError)
		flags := AddFlags(set)
		if c.flag != "" {
			if err := set.Parse([]string{"--mode=" + c.flag}); err != nil {
				t.Fatal(err)
			}
		}
		got, err := Parse([]byte(header + c.text))
		if err == nil {
			err = flags.Apply(got)
		}
		if err != nil || got.Mode != c.mode || got.ModeSet != c.set {
			t.Errorf("mode of file %q with flag %q = %q, set %v, error %v, want %q, set %v", c.text, c.flag, got.Mode, got.ModeSet, err, c.mode, c.set)
		}
	}
	for _, text := range []string{"mode: ''", "mode: replace\nothersDisabled: maybe"} {
		if _, err := Parse([]byte(header + text)); err == nil {
			t.Errorf("Parse of %q returns no error", text)
		}
	}
}

// Doubt delays marks of pods as well as taints.
func TestHelpOfDoubt(t *testing.T) {
	set := pflag.NewFlagSet("nodes", pflag.ContinueOnError)
	AddFlags(set)
	if got, want := set.Lookup("doubt").Usage, "no taints or pod marks while silence is in doubt"; got != want {
		t.Errorf("help of --doubt = %q, want %q", got, want)
	}
}
