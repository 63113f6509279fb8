// A dashboard as the types of Grafana's own package have it, with its panels by their kind, each with
// its options: for dashboards.bats.
import type { Dashboard, FieldConfig, FieldConfigSource, Panel } from "@grafana/schema/dist/esm/raw/dashboard/x/Dashboard_types.gen";
import type * as bargauge from "@grafana/schema/dist/esm/raw/composable/bargauge/panelcfg/x/BarGaugePanelCfg_types.gen";
import type * as stat from "@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen";
import type * as table from "@grafana/schema/dist/esm/raw/composable/table/panelcfg/x/TablePanelCfg_types.gen";
import type * as timeseries from "@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen";

// As JSON has it: a word of an enumeration is its text.
type Json<T> = unknown extends T ? unknown
  : T extends string ? `${T}`
  : T extends number | boolean | null | undefined ? T
  : T extends (infer One)[] ? Json<One>[]
  : { [K in keyof T]: Json<T[K]> };
// What is left out has its default, as far down as there is anything.
type Some<T> = T extends (infer One)[] ? Some<One>[] : T extends object ? { [K in keyof T]?: Some<T[K]> } : T;

type Fields<Custom> = Omit<FieldConfigSource, "defaults"> & { defaults: Omit<FieldConfig, "custom"> & { custom?: Some<Custom> } };
type Of<Type extends string, Options, Custom> = Json<
  Omit<Panel, "type" | "options" | "fieldConfig"> & { type: Type; options: Some<Options>; fieldConfig: Fields<Custom> }
>;
interface Panels {
  bargauge?: Of<"bargauge", bargauge.Options, Record<string, never>>[];
  stat?: Of<"stat", stat.Options, Record<string, never>>[];
  table?: Of<"table", table.Options, table.FieldConfig>[];
  timeseries?: Of<"timeseries", timeseries.Options, timeseries.FieldConfig>[];
}

export type Checked = Json<Omit<Dashboard, "panels">> & { panels: Panels };
