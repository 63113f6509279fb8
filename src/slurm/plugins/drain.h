/* Why a node takes no jobs, in the words that the SPANK plugin drains it with: by them, and by
 * nothing else, the node agent knows the drain that is its own to undo.
 */
#ifndef ALIQUOT_SLURM_DRAIN_H
#define ALIQUOT_SLURM_DRAIN_H

#define ALIQUOT_DRAIN_SILENT "aliquot-agent does not answer"
#define ALIQUOT_DRAIN_UNFIT "aliquot-agent cannot hold shares"

#endif
