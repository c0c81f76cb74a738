package apiconvert

import (
	"encoding/json"
	"testing"
	"time"

	"jettison/stats"
)

// A value that was not read is absent, not 0.
func TestLoad(t *testing.T) {
	n := &stats.NodeStats{CPUs: 2}
	n.Memory.Time = time.Unix(1700000000, 0).UTC()
	n.Memory.CapacityBytes, n.Memory.WorkingSetBytes = stats.Some[uint64](1000), stats.Some[uint64](0)
	n.Pressure.Memory.Stats = stats.Some(stats.PSIStats{Some: stats.PSIData{Avg10: 1.5}, HasSome: true})
	got, err := json.Marshal(Load(n))
	want := `{"time":"2023-11-14T22:13:20Z","cpus":2,"memory":{"capacityBytes":1000,"workingSetBytes":0},"swap":{},"pods":{},` +
		`"pressure":{"memory":{"some":{"avg10":1.5,"avg60":0,"avg300":0}}}}`
	if err != nil || string(got) != want {
		t.Errorf("JSON of the load = %s, error %v, want\n%s", got, err, want)
	}
}
