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

func TestWhatIsWrongIsSaidWithItsLine(t *testing.T) {
	for text, says := range map[string]string{
		"":                                                         "line 1: the file is empty",
		"- 1\n":                                                    "line 1: want a mapping",
		"kind: AgentConfig\n":                                      `line 1: apiVersion "", kind "AgentConfig": want jettison/v1alpha1, ClusterConfiguration`,
		header + "doupt: false":                                    `line 3: unknown field "doupt": did you mean "doubt"?`,
		header + "doubt: 7":                                        `line 3: doubt: want true or false, got "7"`,
		header + "doubt: [1]":                                      `line 3: doubt: want true or false`,
		header + "\ndoubt: true\ndoubt: true":                      "line 5: doubt is set a second time, first on line 4",
		header + "nodeMonitorGracePeriod: 50":                      `line 3: nodeMonitorGracePeriod: want a duration as 1m30s, got "50"`,
		header + "nodeMonitorGracePeriod: 0s":                      "line 3: nodeMonitorGracePeriod: 0s is not above 0",
		header + "nodeEvictionRate: -1":                            "line 3: nodeEvictionRate: -1 is no rate",
		header + "nodeEvictionRate: .nan":                          "line 3: nodeEvictionRate: NaN is no rate",
		header + "largeClusterSizeThreshold: 1.5":                  `line 3: largeClusterSizeThreshold: want a whole number, got "1.5"`,
		header + "largeClusterSizeThreshold: -1":                   "line 3: largeClusterSizeThreshold: -1 is negative",
		header + "unhealthyZoneThreshold: 55":                      "line 3: unhealthyZoneThreshold: 55 is no share",
		header + "pressureTaint: soft":                             `line 3: pressureTaint: "soft" is none of its values: want prefer, hard or off`,
		header + "excludedNodes: ''":                               `line 3: excludedNodes: "" is none of its values: want taint or leave`,
		header + "---\n" + header:                                  "line 3: more than one document in the file",
		header + "a: b: c":                                         "not YAML",
		header + "mode: fence":                                     "line 3: mode: fence needs a check: set fenceCommand or fenceURL",
		header + "mode: act":                                       `line 3: mode: "act" is none of its values: want observe, fence or replace`,
		header + "fenceCommand: check":                             `line 3: fenceCommand: want a list of texts, got "check"`,
		header + "fenceCommand: [check]":                           `line 3: fenceCommand: "check": want the program's whole path`,
		header + "fenceURL: bmc/dead":                              `line 3: fenceURL: "bmc/dead": want http://HOST/`,
		header + "fenceURL: http://b\nfenceCommand: [/c]":          "line 3: fenceURL: fenceCommand is set, too",
		header + "leaderElectLeaseDuration: 9s":                    "line 3: leaderElectLeaseDuration: renew deadline 10s: want more than 0 and less",
		header + "kubeAPIQPS: 0":                                   "line 3: kubeAPIQPS: 0 is no rate",
		header + "address: '10270'":                                `line 3: address: "10270": want HOST:PORT`,
		header + "podEvictionRate: 2\nnodeStartupGracePeriod: -1s": "line 4: nodeStartupGracePeriod: -1s is not above 0",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %s", text, err, says)
		}
	}
}

// Default < file < flag.
func TestFlagsGoBeforeTheFile(t *testing.T) {
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
		err = flags.Over(c)
	}
	if err != nil || c.NodeMonitorGracePeriod != 40*time.Second || c.NodeEvictionRate != 20 || c.Doubt || c.UnhealthyZoneThreshold != 0.55 {
		t.Errorf("%+v %v", c, err)
	}
	if err := set.Parse([]string{"--unhealthy-zone-threshold=2"}); err != nil {
		t.Fatal(err)
	}
	if err := flags.Over(c); err == nil || !strings.Contains(err.Error(), "unhealthyZoneThreshold") {
		t.Error(err)
	}
	if _, err := Load(t.Context(), path+"x"); err == nil {
		t.Error("a file that is not there was read")
	}
}

// The defaults are kube-controller-manager's (1.36.3).
func TestTheDefaultsAreUpstreams(t *testing.T) {
	c := Default()
	if c.NodeMonitorPeriod != 5*time.Second || c.NodeMonitorGracePeriod != 50*time.Second || c.NodeStartupGracePeriod != time.Minute ||
		c.NodeEvictionRate != 0.1 || c.SecondaryNodeEvictionRate != 0.01 || c.LargeClusterSizeThreshold != 50 || c.UnhealthyZoneThreshold != 0.55 {
		t.Errorf("%+v", c)
	}
}

// Each field is a flag, too.
func TestEachFieldIsAFlag(t *testing.T) {
	set := pflag.NewFlagSet("x", pflag.ContinueOnError)
	AddFlags(set)
	fields := reflect.TypeFor[Cluster]()
	for i := range fields.NumField() {
		if name := flagOf(fields.Field(i).Tag.Get("yaml")); set.Lookup(name) == nil {
			t.Errorf("%s has no flag --%s", fields.Field(i).Name, name)
		}
	}
}
