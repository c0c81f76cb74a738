package limits

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"

	"jettison/cgroup"
)

// Unit is a slice of systemd's and what the files of its cgroup say.
type Unit struct {
	Name  string // kubepods.slice
	Files map[cgroup.LimitFile]cgroup.Limit
}

// Teller tells systemd.
type Teller func(ctx context.Context, units []Unit) error

// propertyOf is what systemd calls a file (systemd.resource-control(5)).
var propertyOf = map[cgroup.LimitFile]string{
	cgroup.FileMemoryMin: "MemoryMin", cgroup.FileMemoryLow: "MemoryLow", cgroup.FileMemoryHigh: "MemoryHigh",
	cgroup.FileMemoryMax: "MemoryMax", cgroup.FilePIDsMax: "TasksMax", cgroup.FileCPUWeight: "CPUWeight",
}

// tellLimit bounds how long systemd is waited for.
const tellLimit = 5 * time.Second

// TellSystemd makes what the files of slices say their properties until the next boot: systemd writes all files of a slice when it has a
// reason to, and what it was not told it would set back. It is told last, so that what it writes is there already: whoever lowers a
// memory.max reclaims, and that must not be the first process. All that a slice has is told, for one property has it write all.
func TellSystemd(ctx context.Context, units []Unit) error {
	ctx, cancel := context.WithTimeout(ctx, tellLimit)
	defer cancel()
	conn, err := dbus.NewWithContext(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, u := range units {
		if err := conn.SetUnitPropertiesContext(ctx, u.Name, true, properties(u.Files)...); err != nil {
			return fmt.Errorf("set properties of %s: %w", u.Name, err)
		}
	}
	return nil
}

// properties are what files say, in systemd's terms, by name.
func properties(files map[cgroup.LimitFile]cgroup.Limit) (out []dbus.Property) {
	for _, file := range slices.Sorted(maps.Keys(files)) {
		value := files[file].Bytes
		if files[file].Unlimited {
			value = math.MaxUint64 // "infinity"
		}
		if name, ok := propertyOf[file]; ok && (file != cgroup.FileCPUWeight || value > 0) { // an idle group's is 0
			out = append(out, dbus.Property{Name: name, Value: godbus.MakeVariant(value)})
		}
	}
	return out
}
