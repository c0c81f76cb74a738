package limits

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"

	"jettison/cgroup"
)

// Unit is a slice of systemd's and what the files of its cgroup say.
type Unit struct {
	Name  string // kubepods.slice
	Files map[cgroup.LimitFile]cgroup.Limit
	of    *slice
}

// Teller tells systemd of units, and calls told for each that it has taken.
type Teller func(ctx context.Context, units []Unit, told func(Unit)) error

// propertyOf is what systemd calls a file (systemd.resource-control(5)).
var propertyOf = map[cgroup.LimitFile]string{
	cgroup.FileMemoryMin: "MemoryMin", cgroup.FileMemoryLow: "MemoryLow",
	cgroup.FileMemoryHigh: "MemoryHigh",
	cgroup.FileMemoryMax:  "MemoryMax", cgroup.FilePIDsMax: "TasksMax",
	cgroup.FileCPUWeight: "CPUWeight",
}

// tellLimit bounds how long systemd is waited for.
const tellLimit = 5 * time.Second

// maxRefusals is how many units are named that systemd does not take. One keeps it from being told
// of no other.
const maxRefusals = 4

// TellSystemd makes what the files of slices say their properties until the next boot: systemd
// writes all files of a slice when it has a reason to, and what it was not told it would set back.
// It is told last, so that what it writes is there already: whoever lowers a memory.max reclaims,
// and that must not be the first process. All that a slice has is told, for one property has it
// write all.
//
// It is reached below the host's root directory: a container has a /run of its own.
func TellSystemd(hostRoot string) Teller {
	return func(ctx context.Context, units []Unit, told func(Unit)) error {
		ctx, cancel := context.WithTimeout(ctx, tellLimit)
		defer cancel()
		conn, err := connect(ctx, hostRoot)
		if err != nil {
			return err
		}
		defer conn.Close()
		var errs []error
		for _, u := range units {
			err := conn.SetUnitPropertiesContext(ctx, u.Name, true, properties(u.Files)...)
			if err == nil {
				told(u)
				continue
			}
			if len(errs) < maxRefusals {
				errs = append(errs, fmt.Errorf("set properties of %s: %w", u.Name, err))
			}
			// it is not systemd's answer: there will be none to the others either
			if !errors.As(err, new(godbus.Error)) {
				break
			}
		}
		return errors.Join(errs...)
	}
}

// connect connects to the host's systemd: by its own socket, which root alone may use, and by the
// bus where there is none.
func connect(ctx context.Context, hostRoot string) (*dbus.Conn, error) {
	own, err := dbus.NewConnection(func() (*godbus.Conn, error) {
		return dial(ctx, filepath.Join("/", hostRoot, "run/systemd/private"), false)
	})
	if err == nil {
		return own, nil
	}
	bus, busErr := dbus.NewConnection(func() (*godbus.Conn, error) {
		return dial(ctx, filepath.Join("/", hostRoot, "run/dbus/system_bus_socket"), true)
	})
	if busErr != nil {
		return nil, errors.Join(err, busErr)
	}
	return bus, nil
}

// dial connects to a socket and says who this is, until ctx ends. hello: behind it is a bus, which
// gives names.
func dial(ctx context.Context, socket string, hello bool) (*godbus.Conn, error) {
	stream, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	if deadline, ok := ctx.Deadline(); ok { // what follows asks no context
		_ = stream.SetDeadline(deadline)
	}
	conn, err := godbus.NewConn(stream, godbus.WithContext(ctx))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", socket, err), stream.Close())
	}
	// The number, not the name, which would be looked up in a file of the container's.
	if err = conn.Auth([]godbus.Auth{godbus.AuthExternal(strconv.Itoa(os.Getuid()))}); err == nil &&
		hello {
		err = conn.Hello()
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("%s: %w", socket, err)
	}
	return conn, nil
}

// properties are what files say, in systemd's terms, by name.
func properties(files map[cgroup.LimitFile]cgroup.Limit) (out []dbus.Property) {
	for _, file := range slices.Sorted(maps.Keys(files)) {
		value := files[file].Bytes
		if files[file].Unlimited {
			value = math.MaxUint64 // "infinity"
		}
		// an idle group's is 0
		if name, ok := propertyOf[file]; ok && (file != cgroup.FileCPUWeight || value > 0) {
			out = append(out, dbus.Property{Name: name, Value: godbus.MakeVariant(value)})
		}
	}
	return out
}
