// Command plot draws the plots of test/bench: it reads a list of plots as JSON, and writes an SVG
// file for each into a directory. It does not know what is plotted. It is a separate module, so
// that nothing else here depends on the plotting library.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// figure is a plot of lines with two logarithmic axes.
type figure struct {
	File   string  `json:"file"`
	Title  string  `json:"title"`
	X      string  `json:"x"`
	Y      string  `json:"y"`
	Lines  []line  `json:"lines"`
	XTicks []value `json:"x_ticks"`
	YTicks []value `json:"y_ticks"`
}

type line struct {
	Name   string       `json:"name"`
	Points [][2]float64 `json:"points"`
}

// value is a mark on an axis.
type value struct {
	At   float64 `json:"at"`
	Text string  `json:"text"`
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "plot:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return errors.New("usage: plot FILE DIRECTORY")
	}
	b, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	var figures []figure
	if err := json.Unmarshal(b, &figures); err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	for _, f := range figures {
		if err := f.draw(filepath.Join(args[1], f.File)); err != nil {
			return fmt.Errorf("%s: %w", f.File, err)
		}
	}
	return nil
}

// colours differ also for colour-blind readers (Okabe and Ito).
var colours = []color.RGBA{
	{0x00, 0x72, 0xb2, 0xff}, {0xd5, 0x5e, 0x00, 0xff}, {0x00, 0x9e, 0x73, 0xff}, {0xcc, 0x79, 0xa7, 0xff}, {0xe6, 0x9f, 0x00, 0xff},
}

func (f figure) draw(path string) error {
	p := plot.New()
	p.BackgroundColor = color.White
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = f.Title, f.X, f.Y
	for _, s := range []*font.Font{&p.Title.TextStyle.Font, &p.X.Label.TextStyle.Font, &p.Y.Label.TextStyle.Font,
		&p.X.Tick.Label.Font, &p.Y.Tick.Label.Font, &p.Legend.TextStyle.Font} {
		s.Variant = "Sans"
	}
	p.Title.Padding = vg.Points(8)
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = ticks(f.XTicks), ticks(f.YTicks)
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = color.Gray{Y: 0xdd}, color.Gray{Y: 0xdd}
	p.Add(grid)
	p.Legend.Top, p.Legend.Left = true, true
	for i, l := range f.Lines {
		xys := make(plotter.XYs, len(l.Points))
		for j, at := range l.Points {
			if at[0] <= 0 || at[1] <= 0 {
				return errors.New("point " + strconv.Itoa(j) + " of " + l.Name + " has no logarithm")
			}
			xys[j] = plotter.XY{X: at[0], Y: at[1]}
		}
		curve, points, err := plotter.NewLinePoints(xys)
		if err != nil {
			return err
		}
		c := colours[i%len(colours)]
		curve.Color, curve.Width = c, vg.Points(1.5)
		points.Color, points.Shape, points.Radius = c, draw.CircleGlyph{}, vg.Points(2.5)
		p.Add(curve, points)
		p.Legend.Add(l.Name, curve, points)
	}
	fit(&p.X, f.XTicks)
	fit(&p.Y, f.YTicks)
	return save(p, path)
}

// save adds a margin: half of the last mark is outside of the plot.
func save(p *plot.Plot, path string) error {
	canvas := vgsvg.New(17*vg.Centimeter, 9*vg.Centimeter)
	p.Draw(draw.Crop(draw.New(canvas), 4, -24, 4, -6))
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = canvas.WriteTo(f)
	return errors.Join(err, f.Close())
}

// fit makes an axis reach from its first mark to its last.
func fit(a *plot.Axis, marks []value) {
	if len(marks) > 0 {
		a.Min, a.Max = min(a.Min, marks[0].At), max(a.Max, marks[len(marks)-1].At)
	}
}

func ticks(marks []value) plot.ConstantTicks {
	out := make(plot.ConstantTicks, len(marks))
	for i, m := range marks {
		out[i] = plot.Tick{Value: m.At, Label: m.Text}
	}
	return out
}
