package kubeclient

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
)

// server answers after a delay, with its clock in Date.
type server struct {
	ahead, before, after time.Duration // before and after Date is set
	silent               bool          // no Date
}

func (s *server) RoundTrip(*http.Request) (*http.Response, error) {
	time.Sleep(s.before)
	header := http.Header{}
	if !s.silent {
		header.Set("Date", time.Now().Add(s.ahead).UTC().Format(http.TimeFormat))
	}
	time.Sleep(s.after)
	return &http.Response{StatusCode: http.StatusOK, Header: header, Body: http.NoBody}, nil
}

// The clock follows Date, whatever the wall clock and the delays. A right one stays exact.
func TestServerClock(t *testing.T) {
	for name, c := range map[string]struct {
		server
		wall    time.Duration
		within  time.Duration // of the server's clock
		another time.Duration // the server's clock is set to that later
	}{
		"equal":               {},
		"server ahead":        {server: server{ahead: time.Hour}, within: time.Second},
		"server behind":       {server: server{ahead: -time.Minute}, within: time.Second},
		"wall clock ahead":    {wall: 10 * time.Minute, within: time.Second},
		"slow request":        {server: server{before: 20 * time.Second}},
		"slow response":       {server: server{after: 20 * time.Second}},
		"server is set":       {server: server{ahead: time.Hour}, within: time.Second, another: -time.Hour},
		"server without Date": {server: server{silent: true}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(300 * time.Millisecond)
				clock := ServerClock{WallClock: func() time.Time { return time.Now().Add(c.wall) }}
				if off := time.Until(clock.At(time.Now())); off != c.wall {
					t.Errorf("before a response the clock is %v off, want the wall clock, %v", off, c.wall)
				}
				upstream := c.server
				wrapped := clock.Track(&rest.Config{}).WrapTransport(&upstream)
				check := func() {
					for range 3 {
						r, err := wrapped.RoundTrip(nil)
						if err != nil {
							t.Fatal(err)
						}
						_ = r.Body.Close()
						time.Sleep(700 * time.Millisecond)
						if off := clock.At(time.Now()).Sub(time.Now().Add(upstream.ahead)); off.Abs() > c.within {
							t.Errorf("clock is %v off, want at most %v", off, c.within)
						}
					}
				}
				check()
				if c.another != 0 {
					upstream.ahead = c.another
					check()
				}
				at := time.Now().Add(upstream.ahead)
				time.Sleep(time.Hour) // without a response
				if off := clock.At(time.Now()).Sub(at.Add(time.Hour)); off.Abs() > c.within {
					t.Errorf("clock is %v off after an hour, want at most %v", off, c.within)
				}
				for since, want := range map[time.Duration]time.Duration{time.Minute: time.Minute, -time.Minute: 0} {
					if age := time.Since(clock.FromServer(clock.At(time.Now()).Add(-since))); age != want {
						t.Errorf("a time %v ago is converted to one %v ago, want %v", since, age, want)
					}
				}
			})
		})
	}
}
