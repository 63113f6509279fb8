/* Why a node takes no jobs, in the words that the SPANK plugin or the node agent drains it with: by
 * them, and by nothing else, the agent knows the drain that is its own to undo.
 */
#ifndef ALIQUOT_SLURM_DRAIN_H
#define ALIQUOT_SLURM_DRAIN_H

#define ALIQUOT_DRAIN_SILENT "aliquot-agent does not answer"
#define ALIQUOT_DRAIN_UNFIT "aliquot-agent cannot hold shares"
/* Before what it has found. */
#define ALIQUOT_DRAIN_FOUND "aliquot-agent: "

#endif
